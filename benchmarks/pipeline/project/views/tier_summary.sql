CREATE MATERIALIZED VIEW tier_summary
COMMENT 'Tiers and states, with limits and risks'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  tier,
  state,
  count(*) AS customers,
  sum(credit_limit) AS credit_limit,
  avg(credit_limit) AS average_limit,
  stddev(credit_limit) AS limit_spread,
  avg(risk_score) AS risk_score,
  sum(total_value) AS total_value
FROM customer_value
GROUP BY tier, state;
