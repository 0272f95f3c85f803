CREATE MATERIALIZED VIEW customer_contact
COMMENT 'All ways to reach customers'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT customer_id, 'email' AS kind, email_1 AS contact FROM dim_customer WHERE is_current AND email_1 IS NOT NULL
UNION ALL
SELECT customer_id, 'email', email_2 FROM dim_customer WHERE is_current AND email_2 IS NOT NULL
UNION ALL
SELECT customer_id, 'phone', phone_1 FROM dim_customer WHERE is_current AND phone_1 != ''
UNION
SELECT customer_id, 'phone', p.phone FROM slv_prospect AS p WHERE customer_id IS NOT NULL;
