CREATE MATERIALIZED VIEW customer_trading
COMMENT 'Totals of each customer'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  customer_id,
  count(*) AS trades,
  count(DISTINCT symbol) AS symbols,
  sum(amount) AS amount,
  sum(commission) AS commission,
  avg(trade_price) AS average_price,
  max(traded_at) AS last_traded_at,
  sum(CASE WHEN is_sell THEN -quantity ELSE quantity END) AS net_quantity
FROM fact_trade
GROUP BY customer_id;
