CREATE MATERIALIZED VIEW dim_company
COMMENT 'Versions of companies, with the number of versions'
TBLPROPERTIES ('dagster.group' = 'gold')
AS
SELECT
  xxhash64(cik, effective_at) AS company_key,
  *,
  count(*) OVER (PARTITION BY cik) AS versions
FROM slv_company;
