CREATE MATERIALIZED VIEW delay_extremes
COMMENT 'Best and worst delay of each airline and month: MIN and MAX that corrections can take back'
TBLPROPERTIES ('dagster.group' = 'delays')
AS
SELECT
  l.name AS airline,
  f.month,
  min(f.dep_delay) AS best_departure_minutes,
  max(f.dep_delay) AS worst_departure_minutes,
  min(f.arr_delay) AS best_arrival_minutes,
  max(f.arr_delay) AS worst_arrival_minutes
FROM flights AS f
JOIN airlines AS l ON l.carrier = f.carrier
GROUP BY l.name, f.month;
