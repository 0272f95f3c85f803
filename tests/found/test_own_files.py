"""Statements of a script write to the tables of sources only."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.epoch.scripts import Script

_BEGINNING = """
CREATE TABLE t (k INT, v INT, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 10), (2, 20);
CREATE MATERIALIZED VIEW v AS SELECT k, v FROM t
"""
_OWN = "belongs to the warehouse"


@pytest.fixture
def script(spark: SparkSession, tmp_path: Path) -> Script:
    script = Script(spark, tmp_path / "wh")
    script.begin(_BEGINNING)
    (tmp_path / "link").symlink_to(tmp_path / "wh")
    return script


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM delta.`{root}/_relstate/catalog`",
        "DELETE FROM DELTA.`{root}//views/../_relstate/catalog/`",
        "DELETE FROM delta.`file:{root}/_relstate/catalog`",
        "DELETE FROM delta.`{link}/_relstate/catalog`",
        "DELETE FROM IDENTIFIER('delta.`{root}/_relstate/' || 'catalog`')",
        "EXECUTE IMMEDIATE 'DELETE FROM delta.`{root}/_relstate/catalog`'",
        "EXECUTE IMMEDIATE 'DELETE FROM ' || 'delta.`{root}/views/v`'",
        "UPDATE delta.`{root}/views/v` SET v = 1",
        "INSERT INTO delta.`{root}/views/v` SELECT * FROM delta.`{root}/views/v`",
        "INSERT OVERWRITE delta.`{root}/views/v` SELECT * FROM delta.`{root}/views/v`",
        "INSERT INTO delta.`{root}/views/v` REPLACE WHERE k = 1 SELECT * FROM delta.`{root}/views/v`",
        "WITH a AS (SELECT * FROM delta.`{root}/views/v`) INSERT INTO delta.`{root}/views/v` SELECT * FROM a",
        "FROM delta.`{root}/views/v` INSERT INTO t SELECT k, v INSERT INTO delta.`{root}/views/v` SELECT *",
        "MERGE INTO delta.`{root}/views/v` x USING t ON x.k = t.k WHEN MATCHED THEN DELETE",
        "TRUNCATE TABLE delta.`{root}/views/v`",
        "ALTER TABLE delta.`{root}/views/v` ADD COLUMNS (z INT)",
        "ALTER TABLE delta.`{root}/views/v` CLUSTER BY (k)",
        "ALTER TABLE t SET LOCATION '{root}/views/v'",
        "CREATE EXTERNAL TABLE q (a INT) USING delta LOCATION '{root}/views/q'",
        "CREATE TABLE q (a INT) LOCATION '{root}/views/q'",
        "COPY INTO delta.`{root}/views/v` FROM '/nowhere' FILEFORMAT = PARQUET",
        "OPTIMIZE delta.`{root}/views/v`",
        "OPTIMIZE '{root}/views/v'",
        "VACUUM delta.`{root}/_relstate/catalog` RETAIN 0 HOURS",
        "VACUUM '{root}/_relstate/catalog' RETAIN 0 HOURS",
        "RESTORE TABLE delta.`{root}/views/v` TO VERSION AS OF 0",
        "REORG TABLE delta.`{root}/views/v` APPLY (PURGE)",
        "INSERT OVERWRITE DIRECTORY '{root}/views/v' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '{root}/mine' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '{root}/..' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE LOCAL DIRECTORY '{root}/views/v' USING parquet SELECT 1 AS a",
        "CREATE OR REPLACE TEMPORARY VIEW q USING delta OPTIONS (path '{root}/views/v'); INSERT INTO q SELECT * FROM q",
        "CONVERT TO DELTA parquet.`{root}/_relstate/plans`",
        "INSERT INTO delta.`{root}/new` SELECT 1 AS a",
        "BEGIN IF 1 = 1 THEN DELETE FROM delta.`{root}/views/v`; END IF; END",
        "DROP TABLE delta.`{root}/views/v`",
    ],
)
def test_it_is_refused(script: Script, tmp_path: Path, statement: str) -> None:
    root = Path(script.warehouse.root)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*.json")}
    results = list(script.session.run(statement.format(root=root, link=tmp_path / "link")))
    assert isinstance(results[-1], tuple), "it was run"
    if "COPY" not in statement and "DROP" not in statement and "TEMPORARY" not in statement and "BEGIN" not in statement:
        assert _OWN in str(results[-1][1])
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*.json")} == before
    script.verify()


def test_a_source_that_is_declared_over_the_warehouse_is_read_only(script: Script) -> None:
    root = script.warehouse.root
    script.run(f"CREATE TABLE copy LOCATION '{root}/views/v'; CREATE TABLE log LOCATION '{root}/_relstate/catalog'")
    assert script.rows("SELECT k FROM copy") == [(1,), (2,)]
    for statement in ("DELETE FROM copy", "INSERT INTO Copy SELECT * FROM copy", "DELETE FROM log", "OPTIMIZE log"):
        assert _OWN in str(script.error(statement))


def test_sources_are_written_to_in_every_way(script: Script, tmp_path: Path) -> None:
    root = script.warehouse.root
    script.run(
        f"""
        CREATE TABLE mine (k INT) LOCATION '{root}/mine';
        CREATE TABLE other (k INT) LOCATION '{tmp_path}/other';
        INSERT INTO mine VALUES (1);
        INSERT INTO delta.`{tmp_path}/other` SELECT k FROM delta.`{root}/views/v`;
        WITH a AS (SELECT 3 AS k, 30 AS v) INSERT INTO t SELECT * FROM a;
        INSERT INTO delta.`{root}/sources/t` VALUES (4, 40);
        EXECUTE IMMEDIATE 'DELETE FROM t WHERE k = 4';
        OPTIMIZE t; OPTIMIZE delta.`{root}/sources/t`;
        ALTER TABLE t SET TBLPROPERTIES ('note' = '/any/text');
        INSERT OVERWRITE DIRECTORY '{tmp_path}/out' USING parquet SELECT * FROM v;
        REFRESH
        """
    )
    assert script.rows("SELECT k FROM v") == [(1,), (2,), (3,)]
    assert script.rows("SELECT k FROM other") == [(1,), (2,)]
