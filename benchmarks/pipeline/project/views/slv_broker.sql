CREATE MATERIALIZED VIEW slv_broker
COMMENT 'Employees who are brokers, with their managers'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT
  e.employee_id AS broker_id,
  e.manager_id,
  concat_ws(' ', e.first_name, e.middle_initial, e.last_name) AS broker_name,
  concat_ws(' ', m.first_name, m.last_name) AS manager_name,
  e.branch,
  e.office,
  e.phone
FROM brz_employee AS e
LEFT JOIN brz_employee AS m ON m.employee_id = e.manager_id
WHERE e.job_code = 314;
