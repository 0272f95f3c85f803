CREATE MATERIALIZED VIEW watch_conversion
COMMENT 'Watches that led to trades of the same security'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  w.symbol,
  count(*) AS watches,
  count(t.customer_id) AS with_trade,
  count_if(w.removed_at IS NULL) AS active,
  avg(w.days) AS days,
  count(t.customer_id) / count(*) AS share_with_trade
FROM fact_watch AS w
LEFT JOIN (SELECT DISTINCT customer_id, symbol FROM fact_trade) AS t ON t.customer_id = w.customer_id AND t.symbol = w.symbol
GROUP BY w.symbol;
