CREATE MATERIALIZED VIEW slv_cash_day
COMMENT 'Cash transactions of an account on a day'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT
  account_id,
  day,
  sum(amount) AS amount,
  count(*) AS transactions,
  min(amount) AS least,
  max(amount) AS greatest,
  max(happened_at) AS last_at
FROM brz_cash_transaction
GROUP BY account_id, day;
