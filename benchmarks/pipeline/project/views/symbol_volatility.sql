CREATE MATERIALIZED VIEW symbol_volatility
COMMENT 'Spread of daily changes of each security'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  symbol,
  count(*) AS days,
  avg(change) AS mean_change,
  stddev(change) AS volatility,
  var_pop(close) AS close_variance,
  min(low) AS lowest,
  max(high) AS highest,
  sum(volume) AS volume,
  corr(close, volume) AS close_with_volume
FROM fact_market
GROUP BY symbol;
