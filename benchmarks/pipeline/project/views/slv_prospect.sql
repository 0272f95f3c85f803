CREATE MATERIALIZED VIEW slv_prospect
COMMENT 'Prospects with their nameplates, and whether they are customers'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT
  p.*,
  c.customer_id,
  c.customer_id IS NOT NULL AS is_customer,
  concat_ws('+',
    CASE WHEN p.net_worth > 1000000 OR p.income > 200000 THEN 'HighValue' END,
    CASE WHEN p.children > 3 OR p.credit_cards > 5 THEN 'Expenses' END,
    CASE WHEN p.age > 45 THEN 'Boomer' END,
    CASE WHEN p.income < 50000 OR p.credit_rating < 600 OR p.net_worth < 100000 THEN 'MoneyAlert' END,
    CASE WHEN p.cars > 3 OR p.credit_cards > 7 THEN 'Spender' END,
    CASE WHEN p.age < 25 AND p.net_worth > 1000000 THEN 'Inherited' END) AS nameplate
FROM brz_prospect AS p
LEFT JOIN slv_customer AS c
  ON upper(c.last_name) = p.last_name AND c.first_name = p.first_name AND c.address_line_1 = p.address_line_1
  AND c.postal_code = p.postal_code AND c.is_current;
