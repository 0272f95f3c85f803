CREATE MATERIALIZED VIEW fact_holding
COMMENT 'Holdings with the keys of their trades'
TBLPROPERTIES ('dagster.group' = 'gold')
AS
SELECT
  h.holding_trade_id,
  h.trade_id,
  t.date_key,
  t.account_key,
  t.customer_key,
  t.security_key,
  t.account_id,
  t.symbol,
  t.sector,
  h.traded_at,
  h.trade_price,
  h.change,
  h.change_amount,
  h.position,
  t.commission
FROM slv_holding AS h
JOIN fact_trade AS t ON t.trade_id = h.trade_id;
