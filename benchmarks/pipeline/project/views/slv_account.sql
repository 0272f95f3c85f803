CREATE MATERIALIZED VIEW slv_account
COMMENT 'Versions of accounts with their brokers'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT
  a.account_id,
  a.customer_id,
  a.broker_id,
  b.broker_name,
  b.branch,
  a.account_name,
  a.tax_status,
  a.status_id,
  a.effective_at,
  a.ends_at,
  a.is_current,
  a.batch_id
FROM (
  SELECT
    account_id,
    last_value(customer_id, true) OVER later AS customer_id,
    last_value(broker_id, true) OVER later AS broker_id,
    last_value(account_name, true) OVER later AS account_name,
    last_value(tax_status, true) OVER later AS tax_status,
    last_value(status_id, true) OVER later AS status_id,
    happened_at AS effective_at,
    lead(happened_at, 1, TIMESTAMP'9999-12-31 00:00:00') OVER later AS ends_at,
    lead(happened_at) OVER later IS NULL AS is_current,
    batch_id
  FROM brz_account_event
  WINDOW later AS (PARTITION BY account_id ORDER BY happened_at)
) AS a
LEFT JOIN slv_broker AS b ON b.broker_id = a.broker_id;
