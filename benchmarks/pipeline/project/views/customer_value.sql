CREATE MATERIALIZED VIEW customer_value
COMMENT 'Value of each customer with tier, state and rank within the state'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  v.customer_id,
  c.last_name,
  c.first_name,
  c.tier,
  c.state,
  c.credit_limit,
  c.risk_score,
  v.accounts,
  v.total_value,
  row_number() OVER (PARTITION BY c.state ORDER BY v.total_value DESC, v.customer_id) AS place_in_state,
  percent_rank() OVER (PARTITION BY c.tier ORDER BY v.total_value) AS rank_in_tier
FROM (
  SELECT customer_id, count(*) AS accounts, sum(total_value) AS total_value FROM account_value GROUP BY customer_id
) AS v
JOIN dim_customer AS c ON c.customer_id = v.customer_id AND c.is_current;
