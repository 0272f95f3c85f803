-- Values that could not be computed as they were, over no rows: no row had asked for them, and they are retracted with the first.
CREATE TABLE bid (auction INT, x INT);
CREATE MATERIALIZED VIEW having_all AS
SELECT auction, count(*) AS n FROM bid GROUP BY auction HAVING count(*) >= (SELECT count(*) DIV count(DISTINCT auction) FROM bid);
CREATE MATERIALIZED VIEW joined AS SELECT b.auction, b.x FROM bid b JOIN (SELECT 4 DIV count(*) AS v FROM bid) s ON b.x >= s.v;
CREATE MATERIALIZED VIEW crossed AS SELECT b.x, s.v FROM bid b CROSS JOIN (SELECT 4 DIV count(*) AS v FROM bid) s;
CREATE MATERIALIZED VIEW divided AS SELECT x DIV (SELECT count(*) FROM bid) AS share FROM bid;
CREATE MATERIALIZED VIEW divided_in_join AS SELECT b.x FROM bid b JOIN (SELECT count(*) AS n FROM bid) s ON b.x DIV s.n >= 1;
CREATE MATERIALIZED VIEW by_group AS SELECT b.x, s.share FROM bid b JOIN
(SELECT auction, 12 DIV sum(x) AS share FROM bid GROUP BY auction HAVING sum(x) <> 0) s ON s.auction = b.auction;
INSERT INTO bid VALUES (1, 2), (1, 1), (2, 3);
REFRESH;
-- rows: 1 | 2; 2 | 1
SELECT * FROM having_all;
-- rows: 1 | 2; 1 | 1; 2 | 3
SELECT * FROM joined;
-- rows: 2 | 1; 1 | 1; 3 | 1
SELECT * FROM crossed;
-- rows: 0; 0; 1
SELECT * FROM divided;
-- rows: 3
SELECT * FROM divided_in_join;
-- rows: 2 | 4; 1 | 4; 3 | 4
SELECT * FROM by_group;
-- And back: over no rows once more, then over some.
DELETE FROM bid;
REFRESH;
-- rows:
SELECT * FROM crossed;
VERIFY;
INSERT INTO bid VALUES (5, 9);
REFRESH;
-- rows: 5 | 1
SELECT * FROM having_all;
-- rows: 9
SELECT * FROM divided;
-- A row that is there now, and cannot be computed, is an error of the query's, until it is gone.
CREATE TABLE t (k INT, d INT, PRIMARY KEY (k));
INSERT INTO t VALUES (1, 1);
CREATE MATERIALIZED VIEW inverse AS SELECT k, 10 DIV d AS q FROM t;
INSERT INTO t VALUES (2, 0);
-- error: DIVIDE_BY_ZERO
REFRESH inverse;
UPDATE t SET d = 5 WHERE k = 2;
REFRESH;
-- rows: 1 | 10; 2 | 2
SELECT * FROM inverse;
-- More rows than one in a subquery, for as long as they are there.
CREATE TABLE one (v INT);
INSERT INTO one VALUES (1);
CREATE TABLE reader (x INT);
CREATE MATERIALIZED VIEW of_one AS SELECT x FROM reader WHERE x = (SELECT v FROM one);
INSERT INTO one VALUES (2);
-- error: SCALAR_SUBQUERY_TOO_MANY_ROWS
REFRESH of_one;
DELETE FROM one WHERE v = 1;
INSERT INTO reader VALUES (1), (2);
REFRESH;
-- rows: 2
SELECT * FROM of_one;
-- A view is created where Spark runs its query without an error, and only there.
CREATE TABLE ask (x INT);
-- error: DIVIDE_BY_ZERO
CREATE MATERIALIZED VIEW filtered AS SELECT x FROM ask WHERE x >= (SELECT 4 DIV count(*) FROM ask);
-- error: DIVIDE_BY_ZERO
CREATE MATERIALIZED VIEW selected AS SELECT x, (SELECT 4 DIV count(*) FROM ask) AS v FROM ask;
INSERT INTO ask VALUES (1), (2), (3);
CREATE MATERIALIZED VIEW filtered AS SELECT x FROM ask WHERE x >= (SELECT 4 DIV count(*) FROM ask);
DELETE FROM ask;
REFRESH;
INSERT INTO ask VALUES (7);
REFRESH;
-- rows: 7
SELECT * FROM filtered;
