CREATE MATERIALIZED VIEW symbol_month
COMMENT 'Months of each security: first, last, highest'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  symbol,
  trunc(day, 'MM') AS month,
  min_by(close, day) AS opens,
  max_by(close, day) AS closes,
  max(high) AS high,
  min(low) AS low,
  sum(volume) AS volume,
  count(*) AS days
FROM fact_market
GROUP BY symbol, trunc(day, 'MM');
