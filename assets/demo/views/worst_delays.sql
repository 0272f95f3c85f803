CREATE MATERIALIZED VIEW worst_delays
COMMENT 'The three latest arrivals of each day: top-n per group by ROW_NUMBER'
TBLPROPERTIES ('dagster.group' = 'delays')
AS
SELECT month, day, place, carrier, flight, origin, dest, arr_delay
FROM (
  SELECT
    month,
    day,
    carrier,
    flight,
    origin,
    dest,
    arr_delay,
    row_number() OVER (PARTITION BY month, day ORDER BY arr_delay DESC, carrier, flight, time_hour) AS place
  FROM flights
  WHERE arr_delay IS NOT NULL
) AS ranked
WHERE place <= 3;
