CREATE MATERIALIZED VIEW brz_account_event
COMMENT 'Account actions of the history and changes of later batches, typed, as one log'
TBLPROPERTIES ('dagster.group' = 'bronze')
AS
SELECT
  action_type,
  CAST(action_ts AS TIMESTAMP) AS happened_at,
  CAST(ca_id AS BIGINT) AS account_id,
  CAST(c_id AS BIGINT) AS customer_id,
  CAST(ca_b_id AS BIGINT) AS broker_id,
  ca_name AS account_name,
  CAST(ca_tax_st AS INT) AS tax_status,
  CASE action_type WHEN 'CLOSEACCT' THEN 'INAC' WHEN 'UPDACCT' THEN NULL ELSE 'ACTV' END AS status_id,
  1 AS batch_id
FROM raw_customer_action
WHERE action_type IN ('NEW', 'ADDACCT', 'UPDACCT', 'CLOSEACCT')
UNION ALL
SELECT
  CASE a.cdc_flag WHEN 'I' THEN 'ADDACCT' ELSE 'UPDACCT' END,
  CAST(b.batch_date AS TIMESTAMP),
  CAST(ca_id AS BIGINT),
  CAST(ca_c_id AS BIGINT),
  CAST(ca_b_id AS BIGINT),
  ca_name,
  CAST(ca_tax_st AS INT),
  ca_st_id,
  a.batch_id
FROM raw_account AS a
JOIN raw_batch AS b ON b.batch_id = a.batch_id;
