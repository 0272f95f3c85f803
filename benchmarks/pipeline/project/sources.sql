-- Raw files of a retail brokerage, as they are loaded: nearly all columns are text. `raw_trade` and `raw_prospect` change by key,
-- customers and accounts by rows with a flag; everything else is appended.

CREATE TABLE raw_date (day STRING, is_holiday STRING) TBLPROPERTIES ('delta.appendOnly' = 'true');

CREATE TABLE raw_batch (batch_id INT, batch_date STRING) TBLPROPERTIES ('delta.appendOnly' = 'true');

CREATE TABLE raw_status_type (st_id STRING, st_name STRING, PRIMARY KEY (st_id));

CREATE TABLE raw_trade_type (tt_id STRING, tt_name STRING, tt_is_sell STRING, tt_is_mrkt STRING, PRIMARY KEY (tt_id));

CREATE TABLE raw_tax_rate (tx_id STRING, tx_name STRING, tx_rate STRING, PRIMARY KEY (tx_id));

CREATE TABLE raw_industry (in_id STRING, in_name STRING, in_sc_id STRING, PRIMARY KEY (in_id));

CREATE TABLE raw_employee (line STRING COMMENT 'separated by |') TBLPROPERTIES ('delta.appendOnly' = 'true');

CREATE TABLE raw_finwire (line STRING COMMENT 'fixed widths: companies, securities, financial reports', batch_id INT)
TBLPROPERTIES ('delta.appendOnly' = 'true');

CREATE TABLE raw_customer_action (
  action_type STRING COMMENT 'NEW, ADDACCT, UPDCUST, UPDACCT, CLOSEACCT, INACT',
  action_ts STRING,
  c_id STRING, c_tax_id STRING, c_gndr STRING, c_tier STRING, c_dob STRING,
  c_l_name STRING, c_f_name STRING, c_m_name STRING,
  c_adline1 STRING, c_adline2 STRING, c_zipcode STRING, c_city STRING, c_state_prov STRING, c_ctry STRING,
  c_prim_email STRING, c_alt_email STRING,
  c_area_1 STRING, c_local_1 STRING, c_ext_1 STRING, c_area_2 STRING, c_local_2 STRING, c_area_3 STRING, c_local_3 STRING,
  c_lcl_tx_id STRING, c_nat_tx_id STRING, c_credit_limit STRING, c_risk_score STRING,
  ca_id STRING, ca_tax_st STRING, ca_b_id STRING, ca_name STRING
) TBLPROPERTIES ('delta.appendOnly' = 'true');

CREATE TABLE raw_customer (
  cdc_flag STRING COMMENT 'I or U', cdc_dsn BIGINT, batch_id INT,
  c_id STRING, c_tax_id STRING, c_st_id STRING, c_l_name STRING, c_f_name STRING, c_m_name STRING, c_gndr STRING, c_tier STRING,
  c_dob STRING, c_adline1 STRING, c_adline2 STRING, c_zipcode STRING, c_city STRING, c_state_prov STRING, c_ctry STRING,
  c_area_1 STRING, c_local_1 STRING, c_ext_1 STRING, c_area_2 STRING, c_local_2 STRING, c_area_3 STRING, c_local_3 STRING,
  c_prim_email STRING, c_alt_email STRING, c_lcl_tx_id STRING, c_nat_tx_id STRING, c_credit_limit STRING, c_risk_score STRING
) TBLPROPERTIES ('delta.appendOnly' = 'true');

CREATE TABLE raw_account (
  cdc_flag STRING COMMENT 'I or U', cdc_dsn BIGINT, batch_id INT,
  ca_id STRING, ca_b_id STRING, ca_c_id STRING, ca_name STRING, ca_tax_st STRING, ca_st_id STRING
) TBLPROPERTIES ('delta.appendOnly' = 'true');

CREATE TABLE raw_trade (
  t_id BIGINT NOT NULL, t_dts STRING, t_st_id STRING, t_tt_id STRING, t_is_cash STRING, t_s_symb STRING, t_qty STRING,
  t_bid_price STRING, t_ca_id STRING, t_exec_name STRING, t_trade_price STRING, t_chrg STRING, t_comm STRING, t_tax STRING,
  PRIMARY KEY (t_id)
) COMMENT 'Status and price of a trade change until it is completed';

CREATE TABLE raw_trade_history (th_t_id BIGINT, th_dts STRING, th_st_id STRING) TBLPROPERTIES ('delta.appendOnly' = 'true');

CREATE TABLE raw_daily_market (
  dm_date STRING, dm_s_symb STRING, dm_close STRING, dm_high STRING, dm_low STRING, dm_vol STRING
) TBLPROPERTIES ('delta.appendOnly' = 'true');

CREATE TABLE raw_cash_transaction (ct_ca_id STRING, ct_dts STRING, ct_amt STRING, ct_name STRING)
TBLPROPERTIES ('delta.appendOnly' = 'true');

CREATE TABLE raw_holding_history (hh_h_t_id BIGINT, hh_t_id BIGINT, hh_before_qty STRING, hh_after_qty STRING)
TBLPROPERTIES ('delta.appendOnly' = 'true');

CREATE TABLE raw_watch_history (w_c_id STRING, w_s_symb STRING, w_dts STRING, w_action STRING COMMENT 'ACTV or CNCL')
TBLPROPERTIES ('delta.appendOnly' = 'true');

CREATE TABLE raw_prospect (
  agency_id STRING NOT NULL, last_name STRING, first_name STRING, gender STRING, address_line_1 STRING, postal_code STRING,
  city STRING, state STRING, country STRING, phone STRING, income STRING, number_cars STRING, number_children STRING,
  marital_status STRING, age STRING, credit_rating STRING, own_or_rent_flag STRING, employer STRING, number_credit_cards STRING,
  net_worth STRING,
  PRIMARY KEY (agency_id)
) COMMENT 'Each batch is a snapshot of all of them';
