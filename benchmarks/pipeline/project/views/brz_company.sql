CREATE MATERIALIZED VIEW brz_company
COMMENT 'Lines of companies, parsed from fixed widths'
TBLPROPERTIES ('dagster.group' = 'bronze')
AS
SELECT
  to_timestamp(substring(line, 1, 15), 'yyyyMMdd-HHmmss') AS posted_at,
  trim(substring(line, 19, 40)) AS company_name,
  trim(substring(line, 59, 10)) AS cik,
  trim(substring(line, 69, 4)) AS status_id,
  trim(substring(line, 73, 2)) AS industry_id,
  nullif(trim(substring(line, 75, 4)), '') AS sp_rating,
  to_date(nullif(trim(substring(line, 79, 8)), ''), 'yyyyMMdd') AS founded,
  trim(substring(line, 87, 40)) AS address,
  trim(substring(line, 127, 10)) AS postal_code,
  trim(substring(line, 137, 20)) AS city,
  trim(substring(line, 157, 10)) AS state,
  trim(substring(line, 167, 16)) AS country,
  trim(substring(line, 183, 30)) AS ceo,
  trim(substring(line, 213, 60)) AS description,
  batch_id
FROM raw_finwire
WHERE substring(line, 16, 3) = 'CMP';
