CREATE MATERIALIZED VIEW fact_market
COMMENT 'Prices of each day with yields and ratios'
TBLPROPERTIES ('dagster.group' = 'gold')
AS
SELECT
  m.day,
  d.date_key,
  s.security_key,
  s.company_key,
  m.symbol,
  s.sector,
  m.close,
  m.high,
  m.low,
  m.volume,
  m.high_52_weeks,
  m.low_52_weeks,
  m.average_20_days,
  m.change,
  CAST(s.dividend AS DOUBLE) / m.close * 100 AS yield,
  m.close / nullif(m.high_52_weeks, 0) AS of_high,
  m.close * s.shares_outstanding AS market_value
FROM slv_daily_market AS m
JOIN dim_date AS d ON d.day = m.day
JOIN dim_security AS s ON s.symbol = m.symbol AND s.is_current;
