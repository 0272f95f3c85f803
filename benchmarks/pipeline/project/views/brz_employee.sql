CREATE MATERIALIZED VIEW brz_employee
COMMENT 'Employees, parsed from separated lines'
TBLPROPERTIES ('dagster.group' = 'bronze')
AS
SELECT
  CAST(split(line, '[|]')[0] AS BIGINT) AS employee_id,
  CAST(split(line, '[|]')[1] AS BIGINT) AS manager_id,
  split(line, '[|]')[2] AS first_name,
  split(line, '[|]')[3] AS last_name,
  nullif(split(line, '[|]')[4], '') AS middle_initial,
  CAST(split(line, '[|]')[5] AS INT) AS job_code,
  split(line, '[|]')[6] AS branch,
  split(line, '[|]')[7] AS office,
  split(line, '[|]')[8] AS phone
FROM raw_employee;
