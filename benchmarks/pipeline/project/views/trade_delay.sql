CREATE MATERIALIZED VIEW trade_delay
COMMENT 'How long trades stay open, by type and month'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  type,
  trunc(trade_date, 'MM') AS month,
  count(closed_at) AS closed,
  count(*) - count(closed_at) AS still_open,
  avg(minutes_open) AS minutes_open,
  max(minutes_open) AS longest,
  percentile(minutes_open, 0.9) AS p90
FROM slv_trade
GROUP BY type, trunc(trade_date, 'MM');
