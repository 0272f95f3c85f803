CREATE MATERIALIZED VIEW fact_financial
COMMENT 'Reports with the keys of companies, and price by earnings'
TBLPROPERTIES ('dagster.group' = 'gold')
AS
SELECT
  c.company_key,
  f.cik,
  f.sector,
  f.year,
  f.quarter,
  f.quarter_start,
  f.revenue,
  f.earnings,
  f.equity,
  f.eps,
  f.eps_of_four_quarters,
  f.revenue_change,
  f.margin,
  CAST(f.earnings / nullif(f.revenue, 0) AS DECIMAL(38,10)) AS earnings_by_revenue
FROM slv_financial AS f
JOIN dim_company AS c ON c.cik = f.cik AND c.is_current;
