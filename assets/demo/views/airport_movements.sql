CREATE MATERIALIZED VIEW airport_movements
COMMENT 'Departures and arrivals in one list: UNION ALL of one table read twice'
TBLPROPERTIES ('dagster.group' = 'routes')
AS
SELECT origin AS airport, 'departure' AS movement, month, day, count(*) AS flights
FROM flights
GROUP BY origin, month, day
UNION ALL
SELECT dest AS airport, 'arrival' AS movement, month, day, count(*) AS flights
FROM flights
WHERE arr_time IS NOT NULL
GROUP BY dest, month, day;
