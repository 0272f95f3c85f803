CREATE MATERIALIZED VIEW brz_holding_event
COMMENT 'Changes of holdings, typed'
TBLPROPERTIES ('dagster.group' = 'bronze')
AS
SELECT
  hh_h_t_id AS holding_trade_id,
  hh_t_id AS trade_id,
  CAST(hh_before_qty AS INT) AS before_quantity,
  CAST(hh_after_qty AS INT) AS after_quantity,
  CAST(hh_after_qty AS INT) - CAST(hh_before_qty AS INT) AS change
FROM raw_holding_history;
