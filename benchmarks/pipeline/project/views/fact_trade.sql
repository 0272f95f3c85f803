CREATE MATERIALIZED VIEW fact_trade
COMMENT 'Trades with the keys of what was valid when they were placed'
TBLPROPERTIES ('dagster.group' = 'gold')
AS
SELECT
  t.trade_id,
  d.date_key,
  a.account_key,
  a.customer_key,
  a.broker_key,
  s.security_key,
  s.company_key,
  t.status,
  t.type,
  t.is_sell,
  t.is_cash,
  t.traded_at,
  t.trade_date,
  t.symbol,
  s.sector,
  a.account_id,
  a.customer_id,
  a.broker_id,
  t.quantity,
  t.bid_price,
  t.trade_price,
  t.amount,
  t.fee,
  t.commission,
  t.tax,
  t.amount - t.fee - t.commission - coalesce(t.tax, 0) AS net_amount,
  CAST(t.amount AS DECIMAL(38,10)) / nullif(t.quantity, 0) AS price_by_amount,
  t.minutes_open
FROM slv_trade AS t
JOIN dim_date AS d ON d.day = t.trade_date
JOIN dim_account AS a ON a.account_id = t.account_id AND t.traded_at >= a.effective_at AND t.traded_at < a.ends_at
JOIN dim_security AS s ON s.symbol = t.symbol AND t.traded_at >= s.effective_at AND t.traded_at < s.ends_at;
