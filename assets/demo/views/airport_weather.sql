CREATE MATERIALIZED VIEW airport_weather
COMMENT 'Hours of weather, of rain and of gusts by airport; every airport is here, most have none'
TBLPROPERTIES ('dagster.group' = 'weather')
AS
SELECT
  a.faa,
  a.name,
  count(w.time_hour) AS hours,
  count(CASE WHEN w.precip > 0 THEN 1 END) AS rainy_hours,
  count(w.wind_gust) AS gusty_hours
FROM airports AS a
LEFT JOIN weather AS w ON w.origin = a.faa
GROUP BY a.faa, a.name;
