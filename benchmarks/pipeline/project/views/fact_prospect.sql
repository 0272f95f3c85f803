CREATE MATERIALIZED VIEW fact_prospect
COMMENT 'Prospects with the keys of the customers that they have become'
TBLPROPERTIES ('dagster.group' = 'gold')
AS
SELECT p.agency_id, c.customer_key, p.nameplate, p.is_customer, p.state, p.income, p.net_worth, p.credit_rating, p.age, c.tier
FROM slv_prospect AS p
LEFT JOIN dim_customer AS c ON c.customer_id = p.customer_id AND c.is_current;
