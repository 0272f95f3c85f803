-- Delta does not read the feed of a partitioned table over the commit that switches column mapping on and a column is renamed.
-- The files of both versions are compared instead.
CREATE TABLE p (a INT, b STRING, c INT) PARTITIONED BY (b);
INSERT INTO p VALUES (1, 'x', 1), (2, 'y', 2);
CREATE MATERIALIZED VIEW v AS SELECT a, b FROM p;
ALTER TABLE p SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name');
ALTER TABLE p RENAME COLUMN c TO d;
INSERT INTO p VALUES (5, 'v', 5);
UPDATE p SET a = 7 WHERE b = 'x';
REFRESH;
VERIFY;
-- rows: 2 | y; 5 | v; 7 | x
SELECT * FROM v;
