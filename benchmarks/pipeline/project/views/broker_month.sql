CREATE MATERIALIZED VIEW broker_month
COMMENT 'Commissions of brokers, month by month'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  broker_id,
  trunc(trade_date, 'MM') AS month,
  count(*) AS trades,
  count(DISTINCT account_id) AS accounts,
  sum(commission) AS commission,
  sum(fee) AS fees,
  stddev(commission) AS commission_spread,
  avg(minutes_open) AS minutes_open
FROM fact_trade
WHERE broker_id IS NOT NULL
GROUP BY broker_id, trunc(trade_date, 'MM');
