CREATE MATERIALIZED VIEW fact_cash_balance
COMMENT 'Cash balances with keys'
TBLPROPERTIES ('dagster.group' = 'gold')
AS
SELECT
  c.account_id,
  a.account_key,
  a.customer_key,
  d.date_key,
  c.day,
  c.amount,
  c.transactions,
  c.balance,
  c.average_of_five
FROM slv_cash_balance AS c
JOIN dim_account AS a ON a.account_id = c.account_id AND a.is_current
JOIN dim_date AS d ON d.day = c.day;
