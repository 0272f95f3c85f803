CREATE MATERIALIZED VIEW sector_momentum
COMMENT 'Sectors against their own last days'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  sector,
  day,
  close,
  avg(close) OVER (PARTITION BY sector ORDER BY day ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS average_10_days,
  avg(close) OVER (PARTITION BY sector ORDER BY day ROWS BETWEEN 49 PRECEDING AND CURRENT ROW) AS average_50_days,
  close / lag(close, 5) OVER (PARTITION BY sector ORDER BY day) - 1 AS change_5_days,
  sum(volume) OVER (PARTITION BY sector ORDER BY day ROWS BETWEEN 4 PRECEDING AND CURRENT ROW) AS volume_5_days,
  spread
FROM sector_day;
