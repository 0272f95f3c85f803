CREATE MATERIALIZED VIEW top_customers
COMMENT 'Ten customers with the greatest value in each state'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT state, place_in_state, customer_id, last_name, first_name, tier, total_value
FROM customer_value
WHERE place_in_state <= 10;
