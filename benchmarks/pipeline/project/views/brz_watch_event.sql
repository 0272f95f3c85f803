CREATE MATERIALIZED VIEW brz_watch_event
COMMENT 'Beginnings and ends of watches, typed'
TBLPROPERTIES ('dagster.group' = 'bronze')
AS
SELECT CAST(w_c_id AS BIGINT) AS customer_id, w_s_symb AS symbol, CAST(w_dts AS TIMESTAMP) AS happened_at, w_action AS action
FROM raw_watch_history;
