-- Rows without a key that differ in the sign of a zero alone: stored, joined, limited and published apart.
CREATE TABLE m (d DOUBLE, f FLOAT, s STRUCT<x: DOUBLE>);
CREATE TABLE t (k INT, d DOUBLE, PRIMARY KEY (k));
INSERT INTO m VALUES (0, 0, named_struct('x', 0.0D)), (-0.0D, 0, named_struct('x', -0.0D)), (-0.0D, 0, named_struct('x', -0.0D));
INSERT INTO t VALUES (1, -0.0D), (2, 5);
CREATE MATERIALIZED VIEW passed AS SELECT d, f, s FROM m;
CREATE MATERIALIZED VIEW joined AS SELECT t.k, m.d, m.s FROM t LEFT JOIN m ON t.d = m.d;
CREATE MATERIALIZED VIEW counted AS SELECT d, count(DISTINCT s.x) AS n, count(*) AS rows FROM m GROUP BY d;
CREATE MATERIALIZED VIEW newest AS SELECT k, collect_list(d)[0] AS d FROM t GROUP BY k;
-- rows: 0.0 | 0.0 | 0.0 | 1; -0.0 | 0.0 | -0.0 | 2
SELECT CAST(d AS STRING) AS d, CAST(f AS STRING) AS f, CAST(s.x AS STRING) AS x, count(*) FROM passed GROUP BY ALL;
INSERT INTO m VALUES (-0.0D, 0, named_struct('x', 0.0D)), (0, -0.0F, NULL), (0, 0, named_struct('x', 0.0D));
DELETE FROM m WHERE CAST(s.x AS STRING) = '-0.0';
UPDATE t SET d = 0 WHERE k = 1;
REFRESH;
-- rows: 0.0 | 0.0 | 0.0 | 2; -0.0 | 0.0 | 0.0 | 1; 0.0 | -0.0 | NULL | 1
SELECT CAST(d AS STRING) AS d, CAST(f AS STRING) AS f, CAST(s.x AS STRING) AS x, count(*) FROM passed GROUP BY ALL;
-- rows: 1 | -0.0 | 0.0 | 1; 1 | 0.0 | 0.0 | 2; 1 | 0.0 | NULL | 1; 2 | NULL | NULL | 1
SELECT k, CAST(d AS STRING) AS d, CAST(s.x AS STRING) AS x, count(*) FROM joined GROUP BY ALL;
-- rows: 0.0 | 1 | 4
SELECT CAST(d AS STRING), n, rows FROM counted;
-- rows: 1 | 0.0; 2 | 5.0
SELECT k, CAST(d AS STRING) FROM newest;
DELETE FROM m WHERE CAST(d AS STRING) = '0.0';
UPDATE t SET d = -0.0D WHERE k = 1;
REFRESH;
-- rows: -0.0 | 0.0 | 0.0 | 1
SELECT CAST(d AS STRING) AS d, CAST(f AS STRING) AS f, CAST(s.x AS STRING) AS x, count(*) FROM passed GROUP BY ALL;
-- rows: 1 | -0.0 | 1; 2 | NULL | 1
SELECT k, CAST(d AS STRING) AS d, count(*) FROM joined GROUP BY ALL;
-- rows: 1 | -0.0; 2 | 5.0
SELECT k, CAST(d AS STRING) FROM newest;
