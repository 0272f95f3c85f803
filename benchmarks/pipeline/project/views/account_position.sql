CREATE MATERIALIZED VIEW account_position
COMMENT 'Newest position of each account in each security, at the newest price'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  h.account_id,
  h.symbol,
  h.sector,
  h.position,
  h.traded_at AS last_traded_at,
  p.close AS price,
  p.day AS priced_on,
  h.position * p.close AS position_value
FROM (
  SELECT
    account_id, symbol, sector, position, traded_at,
    row_number() OVER (PARTITION BY account_id, symbol ORDER BY traded_at DESC, trade_id DESC, holding_trade_id DESC) AS place
  FROM fact_holding
) AS h
JOIN (SELECT symbol, max(day) AS day, max_by(close, day) AS close FROM fact_market GROUP BY symbol) AS p ON p.symbol = h.symbol
WHERE h.place = 1;
