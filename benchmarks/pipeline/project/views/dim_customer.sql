CREATE MATERIALIZED VIEW dim_customer
COMMENT 'Versions of customers, with what is known of them as prospects'
TBLPROPERTIES ('dagster.group' = 'gold')
AS
SELECT
  xxhash64(c.customer_id, c.effective_at) AS customer_key,
  c.*,
  p.agency_id,
  p.credit_rating,
  p.net_worth,
  p.income,
  p.nameplate,
  CAST(floor(months_between(TIMESTAMP'2016-06-30 00:00:00', c.date_of_birth) / 12) AS INT) AS age
FROM slv_customer AS c
LEFT JOIN slv_prospect AS p ON p.customer_id = c.customer_id AND c.is_current;
