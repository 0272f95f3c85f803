CREATE MATERIALIZED VIEW brz_financial
COMMENT 'Lines of quarterly reports, parsed from fixed widths'
TBLPROPERTIES ('dagster.group' = 'bronze')
AS
SELECT
  to_timestamp(substring(line, 1, 15), 'yyyyMMdd-HHmmss') AS posted_at,
  CAST(substring(line, 19, 4) AS INT) AS year,
  CAST(substring(line, 23, 1) AS INT) AS quarter,
  to_date(substring(line, 24, 8), 'yyyyMMdd') AS quarter_start,
  CAST(trim(substring(line, 32, 17)) AS DECIMAL(15,2)) AS revenue,
  CAST(trim(substring(line, 49, 17)) AS DECIMAL(15,2)) AS earnings,
  CAST(trim(substring(line, 66, 12)) AS DECIMAL(10,2)) AS eps,
  CAST(trim(substring(line, 78, 12)) AS DECIMAL(10,2)) AS diluted_eps,
  CAST(trim(substring(line, 90, 12)) AS DOUBLE) AS margin,
  CAST(trim(substring(line, 102, 17)) AS DECIMAL(15,2)) AS inventory,
  CAST(trim(substring(line, 119, 17)) AS DECIMAL(15,2)) AS assets,
  CAST(trim(substring(line, 136, 17)) AS DECIMAL(15,2)) AS liabilities,
  CAST(trim(substring(line, 153, 13)) AS BIGINT) AS shares_outstanding,
  trim(substring(line, 166, 40)) AS company_name_or_cik
FROM raw_finwire
WHERE substring(line, 16, 3) = 'FIN';
