CREATE MATERIALIZED VIEW idle_planes
COMMENT 'Planes that never flew from New York: the rows of an outer join that found no partner'
TBLPROPERTIES ('dagster.group' = 'planes')
AS
SELECT p.tailnum, p.manufacturer, p.model, p.seats
FROM planes AS p
LEFT JOIN flights AS f ON f.tailnum = p.tailnum
WHERE f.tailnum IS NULL;
