CREATE MATERIALIZED VIEW flight_details
COMMENT 'Each flight with its airline, destination and plane: a four-way join, two sides of it outer'
TBLPROPERTIES ('dagster.group' = 'flights')
AS
SELECT
  f.time_hour,
  f.carrier,
  f.flight,
  l.name AS airline,
  f.origin,
  f.dest,
  d.name AS destination,
  f.tailnum,
  p.manufacturer,
  p.seats,
  f.dep_delay,
  f.arr_delay,
  f.distance
FROM flights AS f
JOIN airlines AS l ON l.carrier = f.carrier
LEFT JOIN airports AS d ON d.faa = f.dest
LEFT JOIN planes AS p ON p.tailnum = f.tailnum;
