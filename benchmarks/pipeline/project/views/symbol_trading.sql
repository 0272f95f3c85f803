CREATE MATERIALIZED VIEW symbol_trading
COMMENT 'Trades of each security beside its volatility'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  v.symbol,
  v.volatility,
  v.highest,
  v.lowest,
  t.trades,
  t.amount,
  t.price_spread,
  t.commission_spread,
  t.average_price,
  CAST(t.amount AS DOUBLE) / nullif(v.volume, 0) AS amount_by_volume
FROM symbol_volatility AS v
LEFT JOIN (
  SELECT
    symbol,
    count(*) AS trades,
    sum(amount) AS amount,
    stddev(trade_price) AS price_spread,
    stddev(commission) AS commission_spread,
    avg(price_by_amount) AS average_price
  FROM fact_trade
  GROUP BY symbol
) AS t ON t.symbol = v.symbol;
