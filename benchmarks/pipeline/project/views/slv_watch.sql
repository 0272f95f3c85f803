CREATE MATERIALIZED VIEW slv_watch
COMMENT 'Watches of securities, from their first beginning to their last end'
TBLPROPERTIES ('dagster.group' = 'silver')
AS
SELECT
  customer_id,
  symbol,
  min(happened_at) FILTER (WHERE action = 'ACTV') AS placed_at,
  max(happened_at) FILTER (WHERE action = 'CNCL') AS removed_at,
  count_if(action = 'ACTV') AS times_placed,
  count(*) AS events
FROM brz_watch_event
GROUP BY customer_id, symbol;
