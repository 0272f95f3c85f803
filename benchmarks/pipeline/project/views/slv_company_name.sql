CREATE MATERIALIZED VIEW slv_company_name
COMMENT 'Names and keys by which securities and reports refer to companies'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT company_name AS name_or_cik, cik FROM brz_company
UNION
SELECT cik, cik FROM brz_company;
