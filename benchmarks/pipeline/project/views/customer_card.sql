CREATE MATERIALIZED VIEW customer_card
COMMENT 'One wide row for each customer, of all that is known'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  c.customer_id,
  c.last_name,
  c.first_name,
  c.tier,
  c.state,
  c.email_1,
  c.credit_limit,
  c.credit_limit_after_tax,
  c.risk_score,
  c.nameplate,
  t.trades,
  t.symbols,
  t.amount,
  t.commission,
  t.last_traded_at,
  n.standard_score,
  n.is_above_mean,
  v.accounts,
  v.total_value,
  v.place_in_state,
  e.sectors
FROM dim_customer AS c
LEFT JOIN customer_trading AS t ON t.customer_id = c.customer_id
LEFT JOIN customer_concentration AS n ON n.customer_id = c.customer_id
LEFT JOIN customer_value AS v ON v.customer_id = c.customer_id
LEFT JOIN (SELECT customer_id, count(*) AS sectors FROM sector_exposure GROUP BY customer_id) AS e
  ON e.customer_id = c.customer_id
WHERE c.is_current;
