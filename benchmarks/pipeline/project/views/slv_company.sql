CREATE MATERIALIZED VIEW slv_company
COMMENT 'Versions of companies, each until the next one'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT
  c.cik,
  c.company_name,
  s.st_name AS status,
  i.in_name AS industry,
  i.in_sc_id AS sector,
  c.sp_rating,
  c.sp_rating IN ('BB', 'B', 'CCC') AS is_low_grade,
  c.founded,
  c.address,
  c.postal_code,
  c.city,
  c.state,
  c.country,
  c.ceo,
  c.description,
  c.posted_at AS effective_at,
  lead(c.posted_at, 1, TIMESTAMP'9999-12-31 00:00:00') OVER (PARTITION BY c.cik ORDER BY c.posted_at) AS ends_at,
  lead(c.posted_at) OVER (PARTITION BY c.cik ORDER BY c.posted_at) IS NULL AS is_current,
  c.batch_id
FROM brz_company AS c
JOIN raw_status_type AS s ON s.st_id = c.status_id
JOIN raw_industry AS i ON i.in_id = c.industry_id;
