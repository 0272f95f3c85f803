CREATE MATERIALIZED VIEW sector_day
COMMENT 'Sectors, day by day'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  sector,
  day,
  count(*) AS securities,
  sum(volume) AS volume,
  avg(close) AS close,
  avg(change) AS change,
  stddev(change) AS spread,
  sum(market_value) AS market_value
FROM fact_market
GROUP BY sector, day;
