CREATE MATERIALIZED VIEW brz_date
COMMENT 'Days with their parts'
TBLPROPERTIES ('dagster.group' = 'bronze')
AS
SELECT
  CAST(day AS DATE) AS day,
  CAST(date_format(CAST(day AS DATE), 'yyyyMMdd') AS INT) AS day_key,
  year(CAST(day AS DATE)) AS year,
  quarter(CAST(day AS DATE)) AS quarter,
  month(CAST(day AS DATE)) AS month,
  weekofyear(CAST(day AS DATE)) AS week,
  dayofweek(CAST(day AS DATE)) AS day_of_week,
  date_format(CAST(day AS DATE), 'EEEE') AS day_name,
  date_format(CAST(day AS DATE), 'MMMM') AS month_name,
  is_holiday = 'true' AS is_holiday,
  year(add_months(CAST(day AS DATE), 6)) AS fiscal_year,
  quarter(add_months(CAST(day AS DATE), 6)) AS fiscal_quarter
FROM raw_date;
