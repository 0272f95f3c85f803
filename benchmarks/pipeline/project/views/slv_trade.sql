CREATE MATERIALIZED VIEW slv_trade
COMMENT 'Trades with the names of their codes and their life'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT
  t.trade_id,
  t.traded_at,
  t.trade_date,
  s.st_name AS status,
  y.tt_name AS type,
  y.tt_is_sell = '1' AS is_sell,
  y.tt_is_mrkt = '1' AS is_market,
  t.is_cash,
  t.symbol,
  t.quantity,
  t.bid_price,
  t.account_id,
  t.executor,
  t.trade_price,
  CAST(t.trade_price * t.quantity AS DECIMAL(15,2)) AS amount,
  t.fee,
  t.commission,
  t.tax,
  l.placed_at,
  l.closed_at,
  l.events,
  CAST(unix_timestamp(l.closed_at) - unix_timestamp(l.placed_at) AS DOUBLE) / 60 AS minutes_open,
  l.last_status_id
FROM brz_trade AS t
JOIN raw_status_type AS s ON s.st_id = t.status_id
JOIN raw_trade_type AS y ON y.tt_id = t.type_id
LEFT JOIN slv_trade_life AS l ON l.trade_id = t.trade_id;
