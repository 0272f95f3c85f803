CREATE MATERIALIZED VIEW sector_exposure
COMMENT 'Shares of sectors in what each customer holds'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  a.customer_id,
  p.sector,
  sum(p.position_value) AS position_value,
  count(DISTINCT p.symbol) AS symbols,
  sum(sum(p.position_value)) OVER (PARTITION BY a.customer_id) AS of_customer
FROM account_position AS p
JOIN dim_account AS a ON a.account_id = p.account_id AND a.is_current
GROUP BY a.customer_id, p.sector;
