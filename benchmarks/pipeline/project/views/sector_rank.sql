CREATE MATERIALIZED VIEW sector_rank
COMMENT 'Sectors by momentum on each day'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  sector,
  day,
  change_5_days,
  rank() OVER (PARTITION BY day ORDER BY change_5_days DESC, sector) AS place,
  average_10_days > average_50_days AS is_rising
FROM sector_momentum
WHERE change_5_days IS NOT NULL;
