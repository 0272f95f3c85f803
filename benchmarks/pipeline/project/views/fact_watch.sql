CREATE MATERIALIZED VIEW fact_watch
COMMENT 'Watches with keys'
TBLPROPERTIES ('dagster.group' = 'gold')
AS
SELECT
  w.customer_id,
  w.symbol,
  c.customer_key,
  s.security_key,
  p.date_key AS placed_key,
  r.date_key AS removed_key,
  w.placed_at,
  w.removed_at,
  w.times_placed,
  datediff(w.removed_at, w.placed_at) AS days
FROM slv_watch AS w
JOIN dim_customer AS c ON c.customer_id = w.customer_id AND c.is_current
JOIN dim_security AS s ON s.symbol = w.symbol AND s.is_current
LEFT JOIN dim_date AS p ON p.day = CAST(w.placed_at AS DATE)
LEFT JOIN dim_date AS r ON r.day = CAST(w.removed_at AS DATE);
