CREATE MATERIALIZED VIEW dim_security
COMMENT 'Versions of securities with the version of their company'
TBLPROPERTIES ('dagster.group' = 'gold')
AS
SELECT
  xxhash64(s.symbol, s.effective_at) AS security_key,
  c.company_key,
  s.symbol,
  s.issue_type,
  s.status,
  s.security_name,
  s.exchange_id,
  s.shares_outstanding,
  s.first_trade,
  s.first_trade_on_exchange,
  s.dividend,
  s.cik,
  s.sector,
  c.industry,
  c.sp_rating,
  s.effective_at,
  s.ends_at,
  s.is_current
FROM slv_security AS s
JOIN dim_company AS c ON c.cik = s.cik AND s.effective_at >= c.effective_at AND s.effective_at < c.ends_at;
