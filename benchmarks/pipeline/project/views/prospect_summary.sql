CREATE MATERIALIZED VIEW prospect_summary
COMMENT 'Prospects by nameplate and state'
TBLPROPERTIES ('dagster.group' = 'analytics')
AS
SELECT
  nameplate,
  state,
  count(*) AS prospects,
  count_if(is_customer) AS customers,
  avg(income) AS income,
  sum(net_worth) AS net_worth,
  max(credit_rating) AS best_rating
FROM fact_prospect
GROUP BY nameplate, state;
