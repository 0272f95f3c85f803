CREATE MATERIALIZED VIEW airline_punctuality
COMMENT 'Share of flights that arrived within a quarter of an hour: a view over a view'
TBLPROPERTIES ('dagster.group' = 'delays')
AS
SELECT
  airline,
  count(*) AS flights,
  count(CASE WHEN arr_delay <= 15 THEN 1 END) AS flights_on_time,
  CAST(100 * count(CASE WHEN arr_delay <= 15 THEN 1 END) / CAST(count(arr_delay) AS DECIMAL(20, 0)) AS DECIMAL(5, 2))
    AS on_time_percent,
  sum(CAST(seats AS BIGINT)) AS seats_offered
FROM flight_details
GROUP BY airline
HAVING count(arr_delay) > 0;
