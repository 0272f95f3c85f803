CREATE MATERIALIZED VIEW fleet_use
COMMENT 'How many planes and destinations each airline has: COUNT(DISTINCT), twice, beside a plain count'
TBLPROPERTIES ('dagster.group' = 'planes')
AS
SELECT
  carrier,
  count(DISTINCT tailnum) AS planes,
  count(DISTINCT dest) AS destinations,
  count(*) AS flights
FROM flights
GROUP BY carrier;
