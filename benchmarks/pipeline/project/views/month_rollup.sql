CREATE MATERIALIZED VIEW month_rollup
COMMENT 'Months and years in one table'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT year(month) AS year, month, sum(trades) AS trades, sum(amount) AS amount, sum(net_amount) AS net_amount
FROM trade_month
GROUP BY ROLLUP (year(month), month);
