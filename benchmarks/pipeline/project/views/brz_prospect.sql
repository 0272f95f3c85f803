CREATE MATERIALIZED VIEW brz_prospect
COMMENT 'The newest snapshot of prospects, typed'
TBLPROPERTIES ('dagster.group' = 'bronze')
AS
SELECT
  agency_id,
  last_name,
  first_name,
  gender,
  address_line_1,
  postal_code,
  city,
  state,
  country,
  phone,
  CAST(income AS DECIMAL(15,2)) AS income,
  CAST(number_cars AS INT) AS cars,
  CAST(number_children AS INT) AS children,
  marital_status,
  CAST(age AS INT) AS age,
  CAST(credit_rating AS INT) AS credit_rating,
  own_or_rent_flag,
  employer,
  CAST(number_credit_cards AS INT) AS credit_cards,
  CAST(net_worth AS DECIMAL(15,2)) AS net_worth
FROM raw_prospect;
