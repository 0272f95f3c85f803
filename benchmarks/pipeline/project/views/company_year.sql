CREATE MATERIALIZED VIEW company_year
COMMENT 'Years of companies with growth'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  cik,
  year,
  sum(revenue) AS revenue,
  sum(earnings) AS earnings,
  max(equity) AS equity,
  avg(margin) AS margin,
  sum(revenue) - lag(sum(revenue)) OVER (PARTITION BY cik ORDER BY year) AS revenue_growth
FROM fact_financial
GROUP BY cik, year;
