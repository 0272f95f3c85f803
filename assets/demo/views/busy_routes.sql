CREATE MATERIALIZED VIEW busy_routes
COMMENT 'Routes with at least 100 flights: an aggregate over a join, with HAVING'
TBLPROPERTIES ('dagster.group' = 'routes')
AS
SELECT
  f.origin,
  f.dest,
  d.name AS destination,
  count(*) AS flights,
  count(f.arr_delay) AS flights_arrived,
  sum(f.arr_delay) AS arr_delay_minutes,
  sum(CAST(f.distance AS BIGINT)) AS miles
FROM flights AS f
JOIN airports AS d ON d.faa = f.dest
GROUP BY f.origin, f.dest, d.name
HAVING count(*) >= 100;
