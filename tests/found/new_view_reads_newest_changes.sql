-- To those who insert into them, tables of changes are tables: a new view has what was inserted before it was created.
CREATE TABLE u (k INT, v INT, PRIMARY KEY (k)) TBLPROPERTIES ('source.kind' = 'upsert');
CREATE TABLE d (k INT, v INT, PRIMARY KEY (k)) TBLPROPERTIES ('source.kind' = 'debezium');
CREATE TABLE t (k INT, v INT, PRIMARY KEY (k));
CREATE VIEW seen AS SELECT * FROM u;
INSERT INTO u VALUES (1, 10), (2, 20);
INSERT INTO u VALUES (1, 11);
CREATE MATERIALIZED VIEW s AS SELECT sum(v) AS v FROM u;
-- rows: 31
SELECT * FROM s;
-- rows: 1 | 11; 2 | 20
SELECT * FROM u;
INSERT INTO u VALUES (2, 21);
INSERT INTO d VALUES (NULL, named_struct('k', 1, 'v', 5), NULL, 'c', 1);
INSERT INTO t VALUES (1, 100);
CREATE MATERIALIZED VIEW both AS SELECT seen.k, seen.v AS u, d.v AS d, t.v AS t FROM seen LEFT JOIN d USING (k) LEFT JOIN t USING (k);
-- rows: 1 | 11 | 5 | 100; 2 | 21 | NULL | NULL
SELECT * FROM both;
-- An ordinary view is left where it was, unless one epoch needs it.
-- rows: 31
SELECT * FROM s;
INSERT INTO u VALUES (3, 30);
CREATE MATERIALIZED VIEW share AS SELECT u.k, u.v, s.v AS total FROM u CROSS JOIN s;
-- rows: 1 | 11 | 62; 2 | 21 | 62; 3 | 30 | 62
SELECT * FROM share;
INSERT INTO u VALUES (4, 40);
CREATE MATERIALIZED VIEW over AS SELECT v AS total FROM s;
-- rows: 62
SELECT * FROM over;
VERIFY;
REFRESH;
-- rows: 102
SELECT * FROM over;
