-- Names are found in any case, and shown as they were declared.
CREATE TABLE Orders (Id INT, `Value` INT, Region STRING, At TIMESTAMP, PRIMARY KEY (id))
PARTITIONED BY (region) TBLPROPERTIES ('index.columns' = 'VALUE, value', 'source.watermark' = 'AT - INTERVAL 1 HOUR');
INSERT INTO orders VALUES (1, 10, 'n', TIMESTAMP '2024-01-01 00:00:00'), (2, 20, 's', TIMESTAMP '2024-01-01 00:30:00');
CREATE TABLE Others (ID INT, W INT, primary key (iD)) CLUSTER BY (w);
INSERT INTO OTHERS (id, w) VALUES (1, 7), (2, 8);
CREATE MATERIALIZED VIEW Sums (Region COMMENT 'where', Total) CLUSTER BY (REGION)
TBLPROPERTIES ('check.One.unique' = 'REGION', 'check.two.expect' = 'TOTAL > 0')
AS SELECT REGION, sum(value) FROM ORDERS GROUP BY region;
CREATE VIEW Plain AS SELECT ID, W FROM others;
CREATE MATERIALIZED VIEW Over AS SELECT s.*, p.w FROM SUMS s JOIN orders o ON s.region = o.REGION JOIN PLAIN p ON p.Id = o.id;
-- rows: n | 10 | 7; s | 20 | 8
SELECT * FROM oVER;
INSERT INTO ORDERS VALUES (3, 5, 'n', TIMESTAMP '2024-01-01 00:40:00');
UPDATE oRDERS SET VALUE = 21 WHERE ID = 2;
MERGE INTO others o USING (SELECT 2 AS id, 9 AS w) n ON O.ID = N.ID WHEN MATCHED THEN UPDATE SET W = n.w;
REFRESH VIEW sums, OVER;
-- rows: n | 15 | 7; s | 21 | 9
SELECT region, total, w FROM over;
VERIFY sums, oVer;
CHECK SUMS;
CREATE MATERIALIZED VIEW Refers TBLPROPERTIES ('check.three.references' = 'ID IN OTHERS(iD)') AS SELECT Id FROM orders WHERE id < 3;
CHECK refers;
EXPLAIN MATERIALIZED VIEW sums;
-- error: there is a view named Sums already
CREATE MATERIALIZED VIEW SUMS AS SELECT 1 AS a FROM orders;
-- error: there is a table or view named orders already
CREATE TABLE orders (k INT);
-- error: column 'ID' stands twice
CREATE TABLE twice (id INT, ID INT);
-- error: two columns named ID
CREATE MATERIALIZED VIEW same_columns AS SELECT id, value AS ID FROM orders;
CREATE OR REPLACE VIEW PLAIN AS SELECT id, w + 1 AS w FROM OTHERS;
REFRESH;
-- rows: n | 15 | 8; s | 21 | 10
SELECT region, total, w FROM over;
CREATE TABLE Newest (Id INT, Seq INT, V INT, gone BOOLEAN, PRIMARY KEY (ID))
TBLPROPERTIES ('source.kind' = 'upsert', 'source.order' = 'SEQ', 'source.deleted' = 'GONE');
INSERT INTO NEWEST VALUES (1, 1, 10, false), (1, 2, 11, false), (2, 1, 20, false), (2, 2, 20, true);
REFRESH;
-- rows: 1 | 11
SELECT ID, v FROM newest;
DROP MATERIALIZED VIEW over;
DROP VIEW plain;
DROP MATERIALIZED VIEW refers;
DROP TABLE IF EXISTS others;
-- error: (?i)cannot be found
SELECT * FROM Others;
