CREATE MATERIALIZED VIEW slv_cash_balance
COMMENT 'Cash balances of accounts, day by day'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT
  c.account_id,
  a.customer_id,
  c.day,
  c.amount,
  c.transactions,
  sum(c.amount) OVER (PARTITION BY c.account_id ORDER BY c.day) AS balance,
  CAST(avg(c.amount) OVER (PARTITION BY c.account_id ORDER BY c.day ROWS BETWEEN 4 PRECEDING AND CURRENT ROW) AS DOUBLE)
    AS average_of_five,
  lead(c.day, 1, DATE'9999-12-31') OVER (PARTITION BY c.account_id ORDER BY c.day) AS until_day
FROM slv_cash_day AS c
JOIN slv_account AS a ON a.account_id = c.account_id AND a.is_current;
