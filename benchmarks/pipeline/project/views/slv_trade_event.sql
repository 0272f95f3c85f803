CREATE MATERIALIZED VIEW slv_trade_event
COMMENT 'Events of trades with the time since the event before, and their place'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT
  e.trade_id,
  e.happened_at,
  e.status_id,
  s.st_name AS status,
  row_number() OVER (PARTITION BY e.trade_id ORDER BY e.happened_at, e.status_id) AS place,
  lag(e.status_id) OVER (PARTITION BY e.trade_id ORDER BY e.happened_at, e.status_id) AS status_before,
  unix_timestamp(e.happened_at)
    - unix_timestamp(lag(e.happened_at) OVER (PARTITION BY e.trade_id ORDER BY e.happened_at, e.status_id)) AS seconds_since
FROM brz_trade_event AS e
JOIN raw_status_type AS s ON s.st_id = e.status_id;
