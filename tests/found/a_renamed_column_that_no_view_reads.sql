-- Column mapping was switched on, and a column renamed that the views do not read, in one epoch: they were left behind for ever.
CREATE TABLE m (a INT, b STRING, c INT);
CREATE TABLE t (k INT, b STRING, c INT, PRIMARY KEY (k));
CREATE TABLE e (a INT, b STRING, c INT) TBLPROPERTIES ('delta.appendOnly' = 'true');
CREATE TABLE p (a INT, b STRING, c INT) PARTITIONED BY (b) TBLPROPERTIES ('delta.columnMapping.mode' = 'name');
INSERT INTO m VALUES (1, 'x', 1), (1, 'x', 1), (2, 'y', 2);
INSERT INTO e VALUES (1, 'x', 1), (2, 'y', 2);
INSERT INTO p VALUES (1, 'x', 1), (2, 'y', 2);
INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2);
CREATE MATERIALIZED VIEW of_m AS SELECT a, b FROM m;
CREATE MATERIALIZED VIEW of_e AS SELECT a, b FROM e;
CREATE MATERIALIZED VIEW of_p AS SELECT a, b FROM p;
CREATE MATERIALIZED VIEW joined AS SELECT m.a, e.b FROM m JOIN e ON m.a = e.a;
CREATE MATERIALIZED VIEW of_t AS SELECT b, count(*) AS n FROM t GROUP BY b;
INSERT INTO m VALUES (3, 'z', 3);
INSERT INTO t VALUES (3, 'z', 3);
ALTER TABLE e SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name');
ALTER TABLE e RENAME COLUMN c TO d;
INSERT INTO e VALUES (5, 'v', 5);
ALTER TABLE p RENAME COLUMN c TO d;
INSERT INTO p VALUES (5, 'v', 5);
ALTER TABLE m SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name');
ALTER TABLE t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name');
ALTER TABLE m RENAME COLUMN c TO d;
ALTER TABLE t RENAME COLUMN c TO d;
INSERT INTO m VALUES (4, 'z', 4);
INSERT INTO t VALUES (4, 'z', 4);
DELETE FROM m WHERE a = 2;
DELETE FROM t WHERE k = 2;
REFRESH;
-- rows: 1 | x | 2; 3 | z | 1; 4 | z | 1
SELECT a, b, count(*) FROM of_m GROUP BY ALL;
-- rows: x | 1; z | 2
SELECT * FROM of_t;
UPDATE m SET b = 'w' WHERE a = 4;
UPDATE t SET b = 'w' WHERE k = 4;
REFRESH;
-- rows: 1 | x | 2; 3 | z | 1; 4 | w | 1
SELECT a, b, count(*) FROM of_m GROUP BY ALL;
INSERT INTO e VALUES (6, 'u', 6);
DELETE FROM p WHERE a = 1;
REFRESH;
-- rows: 1 | x; 2 | y; 5 | v; 6 | u
SELECT * FROM of_e;
-- rows: 2 | y; 5 | v
SELECT * FROM of_p;
