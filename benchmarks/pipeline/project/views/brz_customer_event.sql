CREATE MATERIALIZED VIEW brz_customer_event
COMMENT 'Customer actions of the history and changes of later batches, typed, as one log'
TBLPROPERTIES ('dagster.group' = 'bronze')
AS
SELECT
  action_type,
  CAST(action_ts AS TIMESTAMP) AS happened_at,
  CAST(c_id AS BIGINT) AS customer_id,
  c_tax_id AS tax_id,
  CASE action_type WHEN 'INACT' THEN 'INAC' WHEN 'NEW' THEN 'ACTV' END AS status_id,
  c_l_name AS last_name,
  c_f_name AS first_name,
  c_m_name AS middle_name,
  upper(c_gndr) AS gender,
  CAST(c_tier AS INT) AS tier,
  CAST(c_dob AS DATE) AS date_of_birth,
  c_adline1 AS address_line_1,
  c_adline2 AS address_line_2,
  c_zipcode AS postal_code,
  c_city AS city,
  c_state_prov AS state,
  c_ctry AS country,
  c_area_1 AS area_1, c_local_1 AS local_1, c_ext_1 AS ext_1,
  c_area_2 AS area_2, c_local_2 AS local_2,
  c_area_3 AS area_3, c_local_3 AS local_3,
  c_prim_email AS email_1,
  c_alt_email AS email_2,
  c_lcl_tx_id AS local_tax_id,
  c_nat_tx_id AS national_tax_id,
  CAST(c_credit_limit AS DECIMAL(38,10)) AS credit_limit,
  CAST(c_risk_score AS DOUBLE) AS risk_score,
  1 AS batch_id
FROM raw_customer_action
WHERE action_type IN ('NEW', 'UPDCUST', 'INACT')
UNION ALL
SELECT
  CASE c.cdc_flag WHEN 'I' THEN 'NEW' ELSE 'UPDCUST' END,
  CAST(b.batch_date AS TIMESTAMP),
  CAST(c_id AS BIGINT),
  c_tax_id,
  c_st_id,
  c_l_name,
  c_f_name,
  c_m_name,
  upper(c_gndr),
  CAST(c_tier AS INT),
  CAST(c_dob AS DATE),
  c_adline1, c_adline2, c_zipcode, c_city, c_state_prov, c_ctry,
  c_area_1, c_local_1, c_ext_1, c_area_2, c_local_2, c_area_3, c_local_3,
  c_prim_email,
  c_alt_email,
  c_lcl_tx_id,
  c_nat_tx_id,
  CAST(c_credit_limit AS DECIMAL(38,10)),
  CAST(c_risk_score AS DOUBLE),
  c.batch_id
FROM raw_customer AS c
JOIN raw_batch AS b ON b.batch_id = c.batch_id;
