CREATE MATERIALIZED VIEW dim_broker
COMMENT 'Brokers'
TBLPROPERTIES ('dagster.group' = 'gold')
AS
SELECT xxhash64(broker_id, 'broker') AS broker_key, * FROM slv_broker;
