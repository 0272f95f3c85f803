CREATE MATERIALIZED VIEW broker_performance
COMMENT 'Ranks of brokers within each month, and their running totals'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  m.broker_id,
  b.broker_name,
  b.branch,
  m.month,
  m.trades,
  m.commission,
  rank() OVER (PARTITION BY m.month ORDER BY m.commission DESC) AS place,
  dense_rank() OVER (PARTITION BY m.month ORDER BY m.trades DESC) AS place_by_trades,
  sum(m.commission) OVER (PARTITION BY m.broker_id ORDER BY m.month) AS commission_so_far,
  m.commission - lag(m.commission) OVER (PARTITION BY m.broker_id ORDER BY m.month) AS commission_change
FROM broker_month AS m
JOIN dim_broker AS b ON b.broker_id = m.broker_id;
