CREATE MATERIALIZED VIEW idle_accounts
COMMENT 'Active accounts without a trade or cash transaction'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT a.account_id, a.customer_id, a.broker_id, a.effective_at
FROM dim_account AS a
LEFT ANTI JOIN slv_trade AS t ON t.account_id = a.account_id
LEFT ANTI JOIN brz_cash_transaction AS c ON c.account_id = a.account_id
WHERE a.is_current AND a.status_id = 'ACTV';
