CREATE MATERIALIZED VIEW branch_summary
COMMENT 'Branches by their brokers'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  branch,
  count(DISTINCT broker_id) AS brokers,
  sum(trades) AS trades,
  sum(commission) AS commission,
  max(commission) AS best_month,
  min(place) AS best_place,
  avg(CAST(commission AS DOUBLE)) AS average_commission
FROM broker_performance
GROUP BY branch;
