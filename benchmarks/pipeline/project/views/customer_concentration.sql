CREATE MATERIALIZED VIEW customer_concentration
COMMENT 'How far each customer is from the mean of all'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  c.customer_id,
  c.trades,
  c.amount,
  a.mean_amount,
  a.deviation,
  (CAST(c.amount AS DOUBLE) - a.mean_amount) / nullif(a.deviation, 0) AS standard_score,
  CAST(c.amount AS DOUBLE) / nullif(a.total_amount, 0) AS share,
  c.amount > a.mean_amount AS is_above_mean
FROM customer_trading AS c
CROSS JOIN (
  SELECT
    avg(CAST(amount AS DOUBLE)) AS mean_amount,
    stddev(CAST(amount AS DOUBLE)) AS deviation,
    CAST(sum(amount) AS DOUBLE) AS total_amount
  FROM customer_trading
) AS a;
