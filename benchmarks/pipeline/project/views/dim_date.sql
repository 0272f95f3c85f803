CREATE MATERIALIZED VIEW dim_date
COMMENT 'Days for facts to refer to'
TBLPROPERTIES ('dagster.group' = 'gold')
AS
SELECT
  day_key AS date_key,
  day,
  concat(year, '-Q', quarter) AS quarter_name,
  concat_ws(' ', month_name, CAST(year AS STRING)) AS month_label,
  trunc(day, 'MM') AS month_start,
  year,
  quarter,
  month,
  week,
  day_name,
  day_of_week IN (1, 7) AS is_weekend,
  is_holiday,
  fiscal_year,
  fiscal_quarter
FROM brz_date;
