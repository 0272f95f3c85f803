"""Bad input gets a clear error that says what, where and what to do, and nothing is written."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, Registry, SourceEntry
from relstate_dagster.jobs.declare import ViewDeclaration
from relstate_dagster.jobs.view_epoch import key_check
from relstate_dagster.state_lib.errors import DeclarationError, PlanError, RelstateError, SourceError, WarehouseError
from tests.epoch.scripts import Script

_TABLES = "CREATE TABLE t (k INT, g INT, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 1), (2, 1);"


def _files(folder: str) -> set[str]:
    of_the_catalog = ("/_relstate/holders", "/_relstate/catalog/")
    return {str(p) for p in Path(folder).rglob("*") if not any(part in str(p) for part in of_the_catalog)}


@pytest.mark.parametrize(
    ("statement", "error", "says"),
    [
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM nowhere", PlanError, "view v: .*`nowhere` cannot be found"),
        ("CREATE MATERIALIZED VIEW v AS SELECT nope FROM t", PlanError, "`nope` cannot be resolved"),
        ("CREATE MATERIALIZED VIEW v AS SELECT g, k FROM t GROUP BY g", PlanError, "view v: Spark refuses the query"),
        ("CREATE VIEW p AS SELECT g, k FROM t GROUP BY g", PlanError, "view p: Spark refuses the query"),
        ("CREATE MATERIALIZED VIEW v AS SELECT rand() AS r FROM t", PlanError, "non-deterministic"),
        ("CREATE MATERIALIZED VIEW v AS SELECT uuid() AS r FROM t", PlanError, "non-deterministic"),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM v", DeclarationError, "reads itself"),
        ("CREATE MATERIALIZED VIEW t AS SELECT 1 AS one", DeclarationError, "there is a source named t already"),
        ("CREATE MATERIALIZED VIEW `a.b` AS SELECT 1 AS one", DeclarationError, "a.b"),
        ("CREATE MATERIALIZED VIEW `../v` AS SELECT 1 AS one", DeclarationError, r"\.\./v"),
        ("CREATE MATERIALIZED VIEW `имя` AS SELECT 1 AS one", DeclarationError, "имя"),
        ("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT 1 AS one", DeclarationError, "OR REPLACE"),
        (
            "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('refresh.policy' = 'sometimes') AS SELECT 1 AS one",
            DeclarationError,
            "refresh.policy",
        ),
        (
            "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('refresh.policy' = 'incremental') AS SELECT current_date() AS d",
            PlanError,
            "time-dependent",
        ),
        ("DROP TABLE nothing", DeclarationError, "no source named nothing"),
        ("REFRESH VIEW nothing", DeclarationError, "no materialized view named nothing"),
        ("EXPLAIN MATERIALIZED VIEW nothing", DeclarationError, "no materialized view named nothing"),
    ],
)
def test_a_bad_statement_changes_nothing(script: Script, statement: str, error: type[RelstateError], says: str) -> None:
    script.begin(_TABLES)
    before = _files(script.warehouse.root)
    with pytest.raises(error, match=says):
        raise script.error(statement)
    assert _files(script.warehouse.root) == before


@pytest.mark.parametrize(
    ("feature", "says"),
    [
        ("catalogManaged", r"cannot be opened: its catalog alone knows its commits \(catalogManaged\)"),
        ("ofTomorrow", "cannot be opened: .*'ofTomorrow' is not supported"),
        (None, "cannot be opened: "),
    ],
)
@pytest.mark.parametrize("declared", ["USING delta LOCATION '{}'", "(k INT) USING delta LOCATION '{}'", "(k INT)"])
def test_a_table_that_cannot_be_opened_is_said_to_be_there(
    script: Script, tmp_path: Path, feature: str | None, says: str, declared: str
) -> None:
    script.run("SELECT 1")
    path = Path(script.warehouse.root) / "sources" / "a" if declared == "(k INT)" else tmp_path / "a"
    write_deltalake(path, pa.table({"k": pa.array([1], pa.int32())}))
    commit = path / "_delta_log" / "00000000000000000000.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "protocol" in action and feature is not None:
            features = {"readerFeatures": [feature], "writerFeatures": [feature]}
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions) if feature else "{no json")
    before = _files(script.warehouse.root), sorted(path.rglob("*"))
    with pytest.raises(SourceError, match=says):
        raise script.error("CREATE TABLE a " + declared.format(path))
    assert (_files(script.warehouse.root), sorted(path.rglob("*"))) == before


def test_a_cycle_through_plain_views_is_refused(script: Script) -> None:
    script.begin(_TABLES)
    script.run("CREATE VIEW p AS SELECT * FROM t")
    script.run("CREATE MATERIALIZED VIEW v AS SELECT * FROM p")
    with pytest.raises(DeclarationError, match=r"p cannot be dropped: v depend"):
        raise script.error("DROP VIEW p")
    with pytest.raises(DeclarationError, match="t cannot be dropped: p, v depend"):
        raise script.error("DROP TABLE t")


def test_writing_to_a_view_is_refused(script: Script) -> None:
    script.begin(_TABLES)
    script.run("CREATE MATERIALIZED VIEW v AS SELECT g FROM t")
    with pytest.raises(DeclarationError, match="v is a view"):
        raise script.error("INSERT INTO v VALUES (1)")


def _external(spark: SparkSession, script: Script, path: Path, key: tuple[str, ...] = ()) -> Registry:
    """Register a Delta table that is not managed by the warehouse, and a view over it."""
    registry = Registry(spark, script.warehouse)
    registry.add_source(SourceEntry("x", str(path), key))
    registry.add_view(ViewDeclaration("v", "SELECT a, count(*) AS n FROM x GROUP BY a"))
    list(EpochRunner(spark, script.warehouse).run())
    return registry


def _create(spark: SparkSession, path: Path, *, feed: bool) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{path}` (a INT, b STRING) USING delta "
        f"TBLPROPERTIES ('delta.enableChangeDataFeed' = '{str(feed).lower()}')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a'), (2, 'b')")


def _refused(spark: SparkSession, script: Script, says: str) -> None:
    before = _files(script.warehouse.root)
    with pytest.raises(SourceError, match=says):
        list(EpochRunner(spark, script.warehouse).run())
    assert _files(script.warehouse.root) == before


def test_a_source_without_change_feed_is_followed(spark: SparkSession, script: Script, tmp_path: Path) -> None:
    path = tmp_path / "x"
    _create(spark, path, feed=False)
    _external(spark, script, path)
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id, 'c' FROM range(2, 4, 1, 1)")
    list(EpochRunner(spark, script.warehouse).run())
    script.verify()
    spark.sql(f"UPDATE delta.`{path}` SET a = 9 WHERE a = 2 AND b = 'c'")
    ((text,),) = script.rows("EXPLAIN MATERIALIZED VIEW v")
    said = r"out of \d+, netted: it has no change data feed, which would have only the changed rows, [\d.]+ kB"
    assert re.search(said, text), text
    (report,) = EpochRunner(spark, script.warehouse).run()
    assert "1 unchanged rows were read" in report.advice[0]
    assert "'delta.enableChangeDataFeed' = 'true'" in report.advice[0]
    script.verify()


def test_a_vacuumed_change_feed(spark: SparkSession, script: Script, tmp_path: Path) -> None:
    """The rows are in the files as well, as long as these are there."""
    path = tmp_path / "x"
    _create(spark, path, feed=True)
    _external(spark, script, path)
    spark.sql(f"UPDATE delta.`{path}` SET b = 'z' WHERE a = 1")
    shutil.rmtree(path / "_change_data")
    (report,) = EpochRunner(spark, script.warehouse).run()
    assert "delta.deletedFileRetentionDuration" in report.advice[0]
    script.verify()
    spark.sql(f"UPDATE delta.`{path}` SET b = 'y' WHERE a = 1")
    shutil.rmtree(path / "_change_data")
    live = {Path(file).name for file in DeltaTable(str(path)).file_uris()}
    for file in path.glob("*.parquet"):
        if file.name not in live:
            file.unlink()
    _refused(spark, script, "vacuumed.*--full-refresh")


def test_a_version_whose_log_entry_is_gone(spark: SparkSession, script: Script, tmp_path: Path) -> None:
    path = tmp_path / "x"
    _create(spark, path, feed=True)
    _external(spark, script, path)
    for n in range(11):
        spark.sql(f"INSERT INTO delta.`{path}` VALUES ({n}, 'n')")
    for version in range(5):
        (path / f"_delta_log/{version:020d}.json").unlink()
    _refused(spark, script, "no longer in the log")


def test_a_source_whose_schema_changed(spark: SparkSession, script: Script, tmp_path: Path) -> None:
    path = tmp_path / "x"
    _create(spark, path, feed=True)
    _external(spark, script, path)
    other = spark.sql("SELECT 10.75D AS a, 'x' AS b").write.format("delta").mode("overwrite")
    other.option("overwriteSchema", "true").save(str(path))
    _refused(spark, script, "changed its schema.*view v reads it: the type of column a changed from int to double")


def test_a_source_that_was_replaced(spark: SparkSession, script: Script, tmp_path: Path) -> None:
    path = tmp_path / "x"
    _create(spark, path, feed=True)
    _external(spark, script, path)
    shutil.rmtree(path)
    _create(spark, path, feed=True)
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (3, 'c')")
    _refused(spark, script, "is another table than at version 1")


def test_an_overwrite_with_a_change_feed_is_exact(spark: SparkSession, script: Script, tmp_path: Path) -> None:
    path = tmp_path / "x"
    _create(spark, path, feed=True)
    _external(spark, script, path)
    spark.sql(f"INSERT OVERWRITE delta.`{path}` VALUES (2, 'b'), (2, 'c'), (5, 'e')")
    list(EpochRunner(spark, script.warehouse).run())
    script.verify()


def test_a_duplicate_primary_key_at_the_backfill(script: Script) -> None:
    script.run("CREATE TABLE d (k INT, PRIMARY KEY (k)); INSERT INTO d VALUES (1), (1)")
    with pytest.raises(SourceError, match=r"PRIMARY KEY \(k\).*2 rows have k = 1"):
        raise script.error("CREATE MATERIALIZED VIEW v AS SELECT * FROM d")
    assert script.warehouse.read().views == {}


def test_a_duplicate_primary_key_that_comes_in_later(script: Script) -> None:
    script.begin(_TABLES)
    script.run("CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g")
    script.run("INSERT INTO t VALUES (2, 7)")
    with pytest.raises(SourceError, match="2 rows have k = 2"):
        raise script.error("REFRESH")
    script.run("DELETE FROM t WHERE g = 7; REFRESH")
    script.verify()


def test_a_warehouse_of_a_newer_format(script: Script) -> None:
    script.begin(_TABLES)
    from dataclasses import replace

    script.warehouse.catalog.write(replace(script.warehouse.read(), format_version=99))
    with pytest.raises(WarehouseError, match="format version 99"):
        raise script.error("REFRESH")


def test_a_damaged_log_is_not_read_over(spark: SparkSession, script: Script, tmp_path: Path) -> None:
    path = tmp_path / "x"
    _create(spark, path, feed=True)
    _external(spark, script, path)
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (3, 'c')")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (4, 'd')")
    (path / f"_delta_log/{2:020d}.json").write_text("")
    with pytest.raises(RelstateError, match=r"empty|damaged|cannot be opened"):
        list(EpochRunner(spark, script.warehouse).run())


_KEYS = {
    "TIMESTAMP": ("TIMESTAMP '2024-01-01 10:00:00'", "TIMESTAMP '2024-01-01 10:00:00.000001'"),
    "TIMESTAMP_NTZ": ("TIMESTAMP_NTZ '2024-01-01 10:00:00'", "TIMESTAMP_NTZ '2024-01-01 11:00:00'"),
    "DECIMAL(10,2)": ("1.5", "2.25"),
}


def test_keys_that_are_written_in_a_form_of_their_own(script: Script) -> None:
    for n, (data_type, (first, second)) in enumerate(_KEYS.items()):
        script.run(
            f"CREATE TABLE k{n} (k {data_type}, n INT, PRIMARY KEY (k, n)); INSERT INTO k{n} VALUES ({first}, 1);"
            f"CREATE MATERIALIZED VIEW v{n} AS SELECT k, sum(n) AS s FROM k{n} GROUP BY k;"
            f"INSERT INTO k{n} VALUES ({second}, 1)"
        )
    script.run("REFRESH")
    script.verify()
    for n, (first, _) in enumerate(_KEYS.values()):
        script.run(f"INSERT INTO k{n} VALUES ({first}, 1)")
        with pytest.raises(SourceError, match=r"PRIMARY KEY \(k, n\).*2 rows have"):
            script.run(f"REFRESH MATERIALIZED VIEW v{n}")


def test_a_new_view_has_only_new_keys_checked(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    script.begin(_TABLES)
    script.run("CREATE MATERIALIZED VIEW a AS SELECT g, count(*) AS n FROM t GROUP BY g")
    whole: list[str] = []
    check_all = key_check._problem_in_all
    monkeypatch.setattr(key_check, "_problem_in_all", lambda *args: whole.append(args[1].name) or check_all(*args))
    script.run("INSERT INTO t VALUES (3, 1); CREATE MATERIALIZED VIEW b AS SELECT g, max(k) AS m FROM t GROUP BY g; VERIFY")
    assert whole == []
    script.run("INSERT INTO t VALUES (3, 2)")
    error = script.error("CREATE MATERIALIZED VIEW c AS SELECT k + g AS s FROM t")
    assert "2 rows have k = 3" in str(error)
    assert whole == []
