CREATE MATERIALIZED VIEW slv_security
COMMENT 'Versions of securities with their companies, found by name or key'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT
  s.symbol,
  s.issue_type,
  t.st_name AS status,
  s.security_name,
  s.exchange_id,
  s.shares_outstanding,
  s.first_trade,
  s.first_trade_on_exchange,
  s.dividend,
  c.cik,
  c.company_name,
  c.sector,
  s.posted_at AS effective_at,
  lead(s.posted_at, 1, TIMESTAMP'9999-12-31 00:00:00') OVER (PARTITION BY s.symbol ORDER BY s.posted_at) AS ends_at,
  row_number() OVER (PARTITION BY s.symbol ORDER BY s.posted_at DESC) = 1 AS is_current,
  s.batch_id
FROM brz_security AS s
JOIN raw_status_type AS t ON t.st_id = s.status_id
JOIN slv_company_name AS n ON n.name_or_cik = s.company_name_or_cik
JOIN slv_company AS c ON c.cik = n.cik AND c.is_current;
