CREATE MATERIALIZED VIEW trade_month
COMMENT 'Months by type and status'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  trunc(trade_date, 'MM') AS month,
  type,
  status,
  count(*) AS trades,
  count(trade_price) AS priced,
  sum(amount) AS amount,
  sum(net_amount) AS net_amount,
  avg(fee) AS fee,
  min(amount) AS least,
  max(amount) AS greatest
FROM fact_trade
GROUP BY trunc(trade_date, 'MM'), type, status;
