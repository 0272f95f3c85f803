CREATE MATERIALIZED VIEW drawdown
COMMENT 'How far each security is below its highest close so far'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  symbol,
  day,
  close,
  max(close) OVER (PARTITION BY symbol ORDER BY day) AS highest_so_far,
  close / max(close) OVER (PARTITION BY symbol ORDER BY day) - 1 AS drawdown
FROM brz_daily_market;
