CREATE MATERIALIZED VIEW brz_cash_transaction
COMMENT 'Cash transactions, typed'
TBLPROPERTIES ('dagster.group' = 'bronze')
AS
SELECT
  CAST(ct_ca_id AS BIGINT) AS account_id,
  CAST(ct_dts AS TIMESTAMP) AS happened_at,
  CAST(ct_dts AS DATE) AS day,
  CAST(ct_amt AS DECIMAL(15,2)) AS amount,
  ct_name AS kind
FROM raw_cash_transaction;
