-- A view that was left behind nets its next change. That must not make 0.0 of -0.0, nor group by VARIANT.
CREATE TABLE n (k INT, d DOUBLE, a ARRAY<DOUBLE>, x STRING);
CREATE TABLE keyed (k INT, d DOUBLE, v VARIANT, x STRING, PRIMARY KEY (k));
INSERT INTO n VALUES (1, 1, array(1.0D), '1'), (2, -0.0D, array(-0.0D, 1), '2');
INSERT INTO keyed VALUES (1, 1, parse_json('{"a": 1}'), '1'), (2, -0.0D, parse_json('[-0.0, 2]'), '2');
CREATE MATERIALIZED VIEW texts AS SELECT k, CAST(d AS STRING) AS s, CAST(a AS STRING) AS t, CAST(x AS INT) AS x FROM n;
CREATE MATERIALIZED VIEW of_keyed AS SELECT k, CAST(d AS STRING) AS s, variant_get(v, '$.a', 'int') AS a, CAST(x AS INT) AS x FROM keyed;
CREATE MATERIALIZED VIEW over_rows AS SELECT CAST(d AS STRING) AS s, n FROM (SELECT d, count(*) OVER (PARTITION BY k) AS n FROM n);
UPDATE n SET d = -0.0D, a = array(-0.0D) WHERE k = 1;
UPDATE keyed SET d = -0.0D, v = parse_json('{"a": 2}') WHERE k = 1;
INSERT INTO n VALUES (3, 0, array(), 'bad');
INSERT INTO keyed VALUES (3, 0, NULL, 'bad');
-- error: CAST_INVALID_INPUT
REFRESH;
DELETE FROM n WHERE x = 'bad';
DELETE FROM keyed WHERE x = 'bad';
REFRESH;
-- rows: 1 | -0.0 | [-0.0] | 1; 2 | -0.0 | [-0.0, 1.0] | 2
SELECT * FROM texts;
-- rows: 1 | -0.0 | 2 | 1; 2 | -0.0 | NULL | 2
SELECT * FROM of_keyed;
-- rows: -0.0 | 1; -0.0 | 1
SELECT * FROM over_rows;
INSERT INTO n VALUES (1, 0, array(0.0D), '1'), (1, 0, array(0.0D), '1'), (1, -0.0D, array(-0.0D), '1');
REFRESH;
-- rows: 0.0 | 4 | 2; -0.0 | 4 | 2; -0.0 | 1 | 1
SELECT s, n, count(*) FROM over_rows GROUP BY ALL;
DELETE FROM n WHERE CAST(d AS STRING) = '0.0';
REFRESH;
-- rows: -0.0 | 2 | 2; -0.0 | 1 | 1
SELECT s, n, count(*) FROM over_rows GROUP BY ALL;
