CREATE MATERIALIZED VIEW slv_financial
COMMENT 'Quarterly reports with the version of their company at that time, and running sums'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT
  c.cik,
  c.company_name,
  c.sector,
  f.year,
  f.quarter,
  f.quarter_start,
  f.posted_at,
  f.revenue,
  f.earnings,
  f.eps,
  f.diluted_eps,
  f.margin,
  f.inventory,
  f.assets,
  f.liabilities,
  f.assets - f.liabilities AS equity,
  f.shares_outstanding,
  sum(f.eps) OVER (PARTITION BY c.cik ORDER BY f.quarter_start ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS eps_of_four_quarters,
  f.revenue - lag(f.revenue) OVER (PARTITION BY c.cik ORDER BY f.quarter_start) AS revenue_change,
  avg(f.margin) OVER (PARTITION BY c.cik ORDER BY f.quarter_start) AS margin_so_far
FROM brz_financial AS f
JOIN slv_company_name AS n ON n.name_or_cik = f.company_name_or_cik
JOIN slv_company AS c ON c.cik = n.cik AND f.posted_at >= c.effective_at AND f.posted_at < c.ends_at;
