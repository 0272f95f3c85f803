CREATE MATERIALIZED VIEW slv_daily_market
COMMENT 'Prices with the highest and lowest of the last 52 weeks, and moving averages'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT
  day,
  symbol,
  close,
  high,
  low,
  volume,
  max(high) OVER year AS high_52_weeks,
  min(low) OVER year AS low_52_weeks,
  avg(close) OVER (PARTITION BY symbol ORDER BY day ROWS BETWEEN 19 PRECEDING AND CURRENT ROW) AS average_20_days,
  lag(close) OVER (PARTITION BY symbol ORDER BY day) AS close_before,
  close / lag(close) OVER (PARTITION BY symbol ORDER BY day) - 1 AS change
FROM brz_daily_market
WINDOW year AS (PARTITION BY symbol ORDER BY day ROWS BETWEEN 363 PRECEDING AND CURRENT ROW);
