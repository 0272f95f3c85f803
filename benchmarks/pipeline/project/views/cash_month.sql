CREATE MATERIALIZED VIEW cash_month
COMMENT 'Months of cash for each kind and tier'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  trunc(c.day, 'MM') AS month,
  c.kind,
  d.tier,
  count(*) AS transactions,
  sum(c.amount) AS amount,
  count_if(c.amount < 0) AS withdrawals,
  stddev(c.amount) AS spread
FROM brz_cash_transaction AS c
JOIN dim_account AS a ON a.account_id = c.account_id AND a.is_current
JOIN dim_customer AS d ON d.customer_id = a.customer_id AND d.is_current
GROUP BY trunc(c.day, 'MM'), c.kind, d.tier;
