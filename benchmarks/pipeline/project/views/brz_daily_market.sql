CREATE MATERIALIZED VIEW brz_daily_market
COMMENT 'Prices of a day, typed'
TBLPROPERTIES ('dagster.group' = 'bronze')
AS
SELECT
  CAST(dm_date AS DATE) AS day,
  dm_s_symb AS symbol,
  CAST(dm_close AS DOUBLE) AS close,
  CAST(dm_high AS DOUBLE) AS high,
  CAST(dm_low AS DOUBLE) AS low,
  CAST(dm_vol AS BIGINT) AS volume
FROM raw_daily_market;
