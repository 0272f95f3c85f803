CREATE MATERIALIZED VIEW slv_trade_life
COMMENT 'When each trade was placed and closed, by its first and last event'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT
  trade_id,
  min(happened_at) AS placed_at,
  max(happened_at) FILTER (WHERE status_id IN ('CMPT', 'CNCL')) AS closed_at,
  max_by(status_id, place) AS last_status_id,
  min_by(status_id, place) AS first_status_id,
  count(*) AS events,
  max(seconds_since) AS longest_wait
FROM slv_trade_event
GROUP BY trade_id;
