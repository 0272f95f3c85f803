CREATE MATERIALIZED VIEW brz_trade_event
COMMENT 'Events of trades, typed'
TBLPROPERTIES ('dagster.group' = 'bronze')
AS
SELECT th_t_id AS trade_id, CAST(th_dts AS TIMESTAMP) AS happened_at, th_st_id AS status_id
FROM raw_trade_history;
