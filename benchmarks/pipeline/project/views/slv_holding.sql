CREATE MATERIALIZED VIEW slv_holding
COMMENT 'Changes of holdings with the trades that made them'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT
  h.holding_trade_id,
  h.trade_id,
  t.account_id,
  t.symbol,
  t.traded_at,
  t.trade_date,
  t.trade_price,
  h.before_quantity,
  h.after_quantity,
  h.change,
  CAST(h.change * t.trade_price AS DECIMAL(38,10)) AS change_amount,
  sum(h.change) OVER (PARTITION BY t.account_id, t.symbol ORDER BY t.traded_at, h.trade_id, h.holding_trade_id) AS position
FROM brz_holding_event AS h
JOIN brz_trade AS t ON t.trade_id = h.trade_id;
