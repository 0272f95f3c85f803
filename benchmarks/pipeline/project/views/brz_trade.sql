CREATE MATERIALIZED VIEW brz_trade
COMMENT 'Trades, typed'
TBLPROPERTIES ('dagster.group' = 'bronze')
AS
SELECT
  t_id AS trade_id,
  CAST(t_dts AS TIMESTAMP) AS traded_at,
  CAST(t_dts AS DATE) AS trade_date,
  t_st_id AS status_id,
  t_tt_id AS type_id,
  t_is_cash = '1' AS is_cash,
  t_s_symb AS symbol,
  CAST(t_qty AS INT) AS quantity,
  CAST(t_bid_price AS DECIMAL(8,2)) AS bid_price,
  CAST(t_ca_id AS BIGINT) AS account_id,
  t_exec_name AS executor,
  CAST(t_trade_price AS DECIMAL(8,2)) AS trade_price,
  CAST(t_chrg AS DECIMAL(10,2)) AS fee,
  CAST(t_comm AS DECIMAL(10,2)) AS commission,
  CAST(t_tax AS DECIMAL(10,2)) AS tax
FROM raw_trade;
