CREATE MATERIALIZED VIEW slv_customer
COMMENT 'Versions of customers, with what an update leaves out taken from the version before'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT
  e.*,
  l.tx_name AS local_tax_name,
  l.tx_rate AS local_tax_rate,
  n.tx_name AS national_tax_name,
  n.tx_rate AS national_tax_rate,
  CAST(e.credit_limit * (1 - CAST(n.tx_rate AS DECIMAL(6,5))) AS DECIMAL(15,2)) AS credit_limit_after_tax
FROM (
  SELECT
    customer_id,
    happened_at AS effective_at,
    lead(happened_at, 1, TIMESTAMP'9999-12-31 00:00:00') OVER later AS ends_at,
    lead(happened_at) OVER later IS NULL AS is_current,
    row_number() OVER later AS version,
    last_value(tax_id, true) OVER later AS tax_id,
    last_value(status_id, true) OVER later AS status_id,
    last_value(last_name, true) OVER later AS last_name,
    last_value(first_name, true) OVER later AS first_name,
    last_value(middle_name, true) OVER later AS middle_name,
    last_value(gender, true) OVER later AS gender,
    last_value(tier, true) OVER later AS tier,
    last_value(date_of_birth, true) OVER later AS date_of_birth,
    last_value(address_line_1, true) OVER later AS address_line_1,
    last_value(address_line_2, true) OVER later AS address_line_2,
    last_value(postal_code, true) OVER later AS postal_code,
    last_value(city, true) OVER later AS city,
    last_value(state, true) OVER later AS state,
    last_value(country, true) OVER later AS country,
    concat_ws('-', last_value(area_1, true) OVER later, last_value(local_1, true) OVER later,
      last_value(ext_1, true) OVER later) AS phone_1,
    concat_ws('-', last_value(area_2, true) OVER later, last_value(local_2, true) OVER later) AS phone_2,
    concat_ws('-', last_value(area_3, true) OVER later, last_value(local_3, true) OVER later) AS phone_3,
    last_value(email_1, true) OVER later AS email_1,
    last_value(email_2, true) OVER later AS email_2,
    last_value(local_tax_id, true) OVER later AS local_tax_id,
    last_value(national_tax_id, true) OVER later AS national_tax_id,
    last_value(credit_limit, true) OVER later AS credit_limit,
    last_value(risk_score, true) OVER later AS risk_score,
    avg(risk_score) OVER later AS risk_score_so_far,
    batch_id
  FROM brz_customer_event
  WINDOW later AS (PARTITION BY customer_id ORDER BY happened_at)
) AS e
LEFT JOIN raw_tax_rate AS l ON l.tx_id = e.local_tax_id
LEFT JOIN raw_tax_rate AS n ON n.tx_id = e.national_tax_id;
