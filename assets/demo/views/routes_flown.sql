CREATE MATERIALIZED VIEW routes_flown
COMMENT 'Every route an airline has flown: DISTINCT, a route goes when its last flight is cancelled'
TBLPROPERTIES ('dagster.group' = 'routes')
AS
SELECT DISTINCT carrier, origin, dest, distance
FROM flights;
