-- A view over an upsert source with source.order that was left behind asked for _commit_version, which nothing reads.
CREATE TABLE u (k INT, ts INT, x STRING, PRIMARY KEY (k)) TBLPROPERTIES ('source.kind' = 'upsert', 'source.order' = 'ts');
CREATE MATERIALIZED VIEW v AS SELECT k, CAST(x AS INT) AS x FROM u;
INSERT INTO u VALUES (1, 1, '1'), (2, 1, 'bad');
-- error: CAST_INVALID_INPUT
REFRESH;
INSERT INTO u VALUES (2, 2, '2');
REFRESH;
-- rows: 1 | 1; 2 | 2
SELECT * FROM v;
