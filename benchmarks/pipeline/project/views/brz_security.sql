CREATE MATERIALIZED VIEW brz_security
COMMENT 'Lines of securities, parsed from fixed widths'
TBLPROPERTIES ('dagster.group' = 'bronze')
AS
SELECT
  to_timestamp(substring(line, 1, 15), 'yyyyMMdd-HHmmss') AS posted_at,
  trim(substring(line, 19, 15)) AS symbol,
  trim(substring(line, 34, 6)) AS issue_type,
  trim(substring(line, 40, 4)) AS status_id,
  trim(substring(line, 44, 40)) AS security_name,
  trim(substring(line, 84, 6)) AS exchange_id,
  CAST(trim(substring(line, 90, 13)) AS BIGINT) AS shares_outstanding,
  to_date(trim(substring(line, 103, 8)), 'yyyyMMdd') AS first_trade,
  to_date(trim(substring(line, 111, 8)), 'yyyyMMdd') AS first_trade_on_exchange,
  CAST(trim(substring(line, 119, 12)) AS DECIMAL(10,2)) AS dividend,
  trim(substring(line, 131, 40)) AS company_name_or_cik,
  batch_id
FROM raw_finwire
WHERE substring(line, 16, 3) = 'SEC';
