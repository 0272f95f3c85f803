CREATE MATERIALIZED VIEW account_value
COMMENT 'Value of each account: positions and cash'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  a.account_id,
  a.customer_id,
  a.broker_id,
  a.status_id,
  coalesce(p.positions, 0) AS positions,
  coalesce(p.position_value, 0) AS position_value,
  b.balance,
  coalesce(p.position_value, 0) + coalesce(CAST(b.balance AS DOUBLE), 0) AS total_value
FROM dim_account AS a
LEFT JOIN (
  SELECT account_id, count(*) AS positions, sum(position_value) AS position_value FROM account_position GROUP BY account_id
) AS p ON p.account_id = a.account_id
LEFT JOIN slv_cash_balance AS b ON b.account_id = a.account_id AND b.until_day = DATE'9999-12-31'
WHERE a.is_current;
