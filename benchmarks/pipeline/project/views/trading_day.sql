CREATE MATERIALIZED VIEW trading_day
COMMENT 'Days with their trades, customers and symbols, and a running total'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  trade_date,
  trades,
  customers,
  amount,
  sum(amount) OVER (PARTITION BY year(trade_date) ORDER BY trade_date) AS amount_of_year,
  avg(trades) OVER (PARTITION BY year(trade_date) ORDER BY trade_date ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS week_average
FROM (
  SELECT trade_date, count(*) AS trades, count(DISTINCT customer_id) AS customers, sum(amount) AS amount
  FROM fact_trade
  GROUP BY trade_date
);
