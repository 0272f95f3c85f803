CREATE MATERIALIZED VIEW dim_account
COMMENT 'Versions of accounts with the versions of customer and broker'
TBLPROPERTIES ('dagster.group' = 'gold')
AS
SELECT
  xxhash64(a.account_id, a.effective_at) AS account_key,
  a.account_id,
  b.broker_key,
  c.customer_key,
  a.customer_id,
  a.broker_id,
  a.account_name,
  a.tax_status,
  a.status_id,
  a.effective_at,
  a.ends_at,
  a.is_current,
  c.tier,
  c.state
FROM slv_account AS a
LEFT JOIN dim_broker AS b ON b.broker_id = a.broker_id
LEFT JOIN dim_customer AS c
  ON c.customer_id = a.customer_id AND a.effective_at >= c.effective_at AND a.effective_at < c.ends_at;
