"""The net difference of files is what changed in a table, whoever wrote it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.catalog.entries import SourceEntry
from relstate_dagster.jobs.registration.registry import Registry
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.sources import delta_source
from relstate_dagster.jobs.sources.commit_range import CommitRange
from relstate_dagster.jobs.sources.delta_changes import DeltaChanges
from relstate_dagster.jobs.sources.delta_source import DeltaSource
from relstate_dagster.jobs.sources.net_files import FileDifference, summed
from relstate_dagster.jobs.sources.pins import ChangeRange, Pin
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.log import TableFacts
from tests.epoch.any_tables import LAYOUTS, AnyTable, bag, net, weighted
from tests.epoch.scripts import Script
from tests.sizes import Resized


class _Net(DeltaChanges):
    """Changes by comparing files in a chosen way, and none as they were recorded."""

    way = "as it chooses"

    def _why_net(self, commits: CommitRange, since: Pin, facts: TableFacts) -> str | None:
        if self.way == "by versions" and commits.changed is not None:
            commits.missing = SourceError("a commit that a test leaves out")
        return "a test asks"

    def _layout_of_both(self, commits: CommitRange, since: Pin, until: Pin) -> None:
        return None if self.way == "by Delta" else super()._layout_of_both(commits, since, until)

    def _difference(self, commits: CommitRange, since: Pin, until: Pin, reason: str) -> FileDifference:
        if self.way == "by commits" and commits.changed is not None and not commits.alters:
            raise SourceError("a version that a test leaves out")
        return super()._difference(commits, since, until, reason)


_WAYS = ("as it chooses", "by versions", "by commits", "by Delta")


@pytest.fixture(autouse=True)
def _tracked_rows(resized: Resized) -> None:
    """Ids of rows are used, however few there are."""
    resized(tracked_rows=0, tracked_row_bytes=0)


#: Layouts that are tried by default; the others are, like more seeds, for the night.
_MAIN = ("plain", "marked", "mapped", "texts", "times, marked")


def _cases(count: int) -> list[ParameterSet]:
    """Layouts and seeds."""
    cases = [(layout, seed) for layout in LAYOUTS for seed in range(count)]
    by_default = {(layout, 0) for layout in _MAIN}
    return [pytest.param(*case, marks=() if case in by_default else pytest.mark.nightly) for case in cases]


@pytest.mark.parametrize(("layout", "seed"), _cases(4))
def test_every_way_gives_what_changed(spark: SparkSession, tmp_path: Path, layout: str, seed: int) -> None:
    table = AnyTable(spark.newSession(), tmp_path / "t", layout, seed, has_feed=True)
    path, first = str(tmp_path / "t"), DeltaSource("t", str(tmp_path / "t"), ("k",)).pin(None)
    since = first
    for _ in range(2):
        for _ in range(table.random.randint(2, 4)):
            table.change()
        until = DeltaSource("t", path, ("k",)).pin(None)
        _check(table, path, since, until)
        since = until
    _check(table, path, first, until)


def _check(table: AnyTable, path: str, since: Pin, until: Pin) -> None:
    for way in _WAYS:
        source = DeltaSource("t", path, ("k",))
        source._changes = _Net("t", source.versions)
        source._changes.way = way
        found = source.check_range(since, until, append_only=False)
        changes = source.changes(table.spark, since, until, found)
        before, after = source.snapshot(table.spark, since), source.snapshot(table.spark, until)
        columns = [c for c in after.columns if c in before.columns and (changes is None or c in changes.columns)]
        expected = net(bag(before.select(*columns)), bag(after.select(*columns)))
        assert weighted(changes, columns) == expected, (way, table.layout, table.seed, table.done, since.version, until.version)
    feed = _feed(table, path, since, until)
    if feed is not None:
        assert weighted(feed, columns) == expected, (table.layout, table.seed, table.done, since.version, until.version)


def _feed(table: AnyTable, path: str, since: Pin, until: Pin) -> DataFrame | None:
    """The table's own record of the changes, where Delta can read it."""
    if since.version == until.version:
        return None
    reader = table.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", since.version + 1)
    try:
        feed = reader.option("endingVersion", until.version).load(path)
        weight = "IF(_change_type IN ('insert', 'update_postimage'), 1L, -1L) AS _weight"
        return feed.selectExpr("*", weight).drop("_change_type", "_commit_version", "_commit_timestamp").localCheckpoint()
    except Exception:  # over a change of columns
        return None


_VIEWS = """
CREATE MATERIALIZED VIEW grouped AS SELECT p, count(*) AS n, sum(v) AS s, min(k) AS low, max(x) AS high FROM t GROUP BY p;
CREATE MATERIALIZED VIEW passed AS SELECT k, v, d, s, u, p FROM t WHERE v IS NOT NULL OR k % 2 = 0;
CREATE MATERIALIZED VIEW joined AS SELECT t.k, t.d, o.v FROM t LEFT JOIN t o ON t.v = o.k;
CREATE MATERIALIZED VIEW ranked AS SELECT k, v, count(*) OVER (PARTITION BY v) AS n FROM t;
"""


@pytest.mark.parametrize(("layout", "seed"), _cases(4))
def test_views_over_tables_without_a_feed(script: Script, spark: SparkSession, tmp_path: Path, layout: str, seed: int) -> None:
    is_keyed = (seed + list(LAYOUTS).index(layout)) % 2 == 0
    table = AnyTable(spark.newSession(), tmp_path / "t", layout, 7 + seed, is_keyed)
    registry = Registry(spark, script.warehouse)
    registry.add_source(SourceEntry("t", str(tmp_path / "t"), ("k",) if is_keyed else ()))
    script.run(_VIEWS + "REFRESH")
    script.verify()
    for _ in range(3):
        for _ in range(table.random.randint(1, 4)):
            table.change()
        try:
            script.run("REFRESH; VERIFY")
        except Exception as error:
            raise AssertionError(f"{layout} {seed}, after {table.done}: {error}") from error


# -- cases that are not left to chance ----------------------------------------------------------------------------------


def _create(spark: SparkSession, path: Path, columns: str, properties: str = "", partitioned: str = "") -> str:
    wanted = f"TBLPROPERTIES ({properties})" if properties else ""
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {partitioned} {wanted}")
    return str(path)


def _range(path: str, since: Pin) -> tuple[DeltaSource, Pin, ChangeRange]:
    source = DeltaSource("t", path, ("k",))
    until = source.pin(None)
    return source, until, source.check_range(since, until, append_only=False)


def test_files_that_optimize_has_rewritten_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    path = _create(spark, tmp_path / "t", "k INT, v STRING")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id, repeat('x', 100) FROM range(0, 20000, 1, 4)")
    since = DeltaSource("t", path).pin(None)
    spark.sql(f"OPTIMIZE delta.`{path}`")
    assert _range(path, since)[2].changed_bytes == 0
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (-1, 'a'), (-2, 'b')")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k = -1")
    source, until, found = _range(path, since)
    assert found.net is not None
    assert found.changed_bytes < 2_000
    assert weighted(source.changes(spark, since, until, found), ["k", "v"]) == {"(-2, 'b')": 1}
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {since.version}")
    source, until, found = _range(path, since)
    assert source.changes(spark, since, until, found) is None
    assert source.read_strategy(found, until) == "nothing changed"


@pytest.mark.parametrize(
    "properties", ["", ", 'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true'"], ids=["plain", "mapped"]
)
def test_rows_of_rewritten_files_are_told_apart_by_their_ids(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: str
) -> None:
    compared: list[int] = []
    monkeypatch.setattr(delta_source, "summed", lambda rows, columns: compared.append(rows.count()) or summed(rows, columns))
    path = _create(spark, tmp_path / "t", "k INT, v STRING, `x-y` DOUBLE", f"'delta.enableRowTracking' = 'true'{properties}")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id, id % 3, 0.5 FROM range(0, 9000, 1, 3)")
    since = DeltaSource("t", path).pin(None)
    spark.sql(f"UPDATE delta.`{path}` SET v = 'new' WHERE k % 4000 = 1")
    spark.sql(f"UPDATE delta.`{path}` SET v = v WHERE k = 2")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k = 7")
    spark.sql(f"OPTIMIZE delta.`{path}`")
    source, until, found = _range(path, since)
    assert found.net is not None
    assert found.net.tracking is not None
    changes = weighted(source.changes(spark, since, until, found), ["k", "v"])
    updated = {f"({k}, '{old}')": -1 for k, old in ((1, 1), (4001, 2), (8001, 0), (7, 1))}
    assert changes == updated | {f"({k}, 'new')": 1 for k in (1, 4001, 8001)}
    assert compared == [9], "the row that was written again as it was, too"
    # Ids are not used where rows were not tracked all the time.
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableRowTracking' = 'false')")
    spark.sql(f"UPDATE delta.`{path}` SET v = 'newer' WHERE k = 3")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    source, until, found = _range(path, until)
    assert found.net is not None
    assert found.net.tracking is None
    expected = {"(3, '0')": -1, "(3, 'newer')": 1}
    assert weighted(source.changes(spark, until, source.pin(None), found), ["k", "v"]) == expected


def test_commits_and_files_in_between_may_be_gone(spark: SparkSession, tmp_path: Path) -> None:
    path = _create(spark, tmp_path / "t", "k INT, v INT", "'delta.enableChangeDataFeed' = 'true'")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id, 0 FROM range(0, 10, 1, 1)")
    since = DeltaSource("t", path).pin(None)
    DeltaTable(path).create_checkpoint()
    for n in range(1, 4):
        spark.sql(f"UPDATE delta.`{path}` SET v = {n} WHERE k = {n}")
    live = {Path(file).name for at in (since.version, None) for file in DeltaTable(path, version=at).file_uris()}
    for file in Path(path).glob("*.parquet"):
        if file.name not in live:
            file.unlink()
    shutil.rmtree(Path(path) / "_change_data")
    expected = {f"({k}, {k})": 1 for k in range(1, 4)} | {f"({k}, 0)": -1 for k in range(1, 4)}
    source, until, found = _range(path, since)
    assert found.net is not None
    assert found.net.reason == "files with its recorded changes are gone"
    assert weighted(source.changes(spark, since, until, found), ["k", "v"]) == expected
    DeltaTable(path).create_checkpoint()
    (Path(path) / f"_delta_log/{since.version + 2:020d}.json").unlink()
    source, until, found = _range(path, since)
    assert found.net is not None
    assert found.net.reason == "commits are no longer in its log"
    assert weighted(source.changes(spark, since, until, found), ["k", "v"]) == expected


@pytest.mark.parametrize("columns", ["k INT, v INT, p TIMESTAMP", "k INT, v INT, p STRING"], ids=["by Delta", "by files"])
def test_a_feed_that_was_off_for_a_time(script: Script, spark: SparkSession, tmp_path: Path, columns: str) -> None:
    path = _create(spark, tmp_path / "t", columns, "'delta.enableChangeDataFeed' = 'true'", "PARTITIONED BY (p)")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id, 0, CAST('2024-01-01' AS TIMESTAMP) FROM range(0, 6, 1, 1)")
    Registry(spark, script.warehouse).add_source(SourceEntry("t", path, ("k",)))
    script.run("CREATE MATERIALIZED VIEW m AS SELECT p, count(*) AS n, sum(v) AS s FROM t GROUP BY p; REFRESH")
    for statement in (
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')",
        "UPDATE {t} SET v = 1 WHERE k < 2",
        "INSERT INTO {t} VALUES (10, 1, NULL)",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        "DELETE FROM {t} WHERE k = 4",
    ):
        spark.sql(statement.replace("{t}", f"delta.`{path}`"))
    script.run("REFRESH; VERIFY")
    spark.sql(f"UPDATE delta.`{path}` SET v = 2 WHERE k = 3")
    script.run("REFRESH; VERIFY")
    assert DeltaSource("t", path).facts().has_change_feed


def test_other_columns_partitions_and_types(script: Script, spark: SparkSession, tmp_path: Path) -> None:
    """Each version of a table with a new schema is read by its own schema."""
    path = _create(spark, tmp_path / "t", "k INT, v INT, p STRING", "", "PARTITIONED BY (p)")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 1, 'a'), (2, 2, 'b')")
    Registry(spark, script.warehouse).add_source(SourceEntry("t", path, ("k",)))
    script.run("CREATE MATERIALIZED VIEW m AS SELECT k, v FROM t; REFRESH")
    rows = spark.sql("SELECT 2 AS k, 2 AS v, 7 AS p, 'x' AS more UNION ALL SELECT 3, 3, 8, 'y'")
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy("v")
    writer.save(path)
    script.run("REFRESH; VERIFY")
    assert script.rows("SELECT * FROM m") == [(2, 2), (3, 3)]


def test_declared_append_only_is_refused_and_others_go_on(script: Script, spark: SparkSession, tmp_path: Path) -> None:
    path = _create(spark, tmp_path / "t", "k INT", "'delta.appendOnly' = 'true'")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1), (2)")
    Registry(spark, script.warehouse).add_source(SourceEntry("t", path))
    script.run("CREATE MATERIALIZED VIEW ids AS SELECT k FROM t; REFRESH")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    script.run("CREATE MATERIALIZED VIEW bag AS SELECT k FROM t; REFRESH")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k = 1")
    error = script.error("REFRESH")
    assert re.search(r"declared append-only, but version [0-9] updated or deleted rows.*--full-refresh", str(error))
    script.run("VERIFY bag")
    assert script.rows("SELECT * FROM bag") == [(2,)]
    list(EpochRunner(script.session._spark, script.warehouse).run(full_refresh=["ids"]))
    script.verify()


def test_keys_and_indexes_of_tables_without_a_feed(script: Script, spark: SparkSession, tmp_path: Path) -> None:
    path = _create(spark, tmp_path / "t", "k INT, v INT")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id, id % 3 FROM range(0, 30, 1, 1)")
    Registry(spark, script.warehouse).add_source(SourceEntry("t", path, ("k",), indexes=("v",)))
    script.run(
        "CREATE TABLE o (v INT); INSERT INTO o VALUES (1);"
        "CREATE MATERIALIZED VIEW j AS SELECT t.k FROM o JOIN t ON t.v = o.v; REFRESH"
    )
    spark.sql(f"UPDATE delta.`{path}` SET v = 1 WHERE k % 5 = 0")
    script.run("INSERT INTO o VALUES (2); REFRESH; VERIFY")
    spark.sql(f"UPDATE delta.`{path}` SET k = 7 WHERE k = 8")
    with pytest.raises(SourceError, match="2 rows have k = 7"):
        raise script.error("REFRESH")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k = 7")
    script.run("REFRESH; VERIFY")


def test_appended_files_are_read_alone(script: Script, spark: SparkSession, tmp_path: Path) -> None:
    """Also where Delta alone reads updates, and where a query reads no column."""
    path = _create(spark, tmp_path / "t", "k INT, p TIMESTAMP", "", "PARTITIONED BY (p)")
    into = f"INSERT INTO delta.`{path}` VALUES"
    spark.sql(f"{into} (1, TIMESTAMP'2024-02-29 23:59:59.5'), (2, NULL)")
    Registry(spark, script.warehouse).add_source(SourceEntry("t", path))
    script.run(
        "CREATE MATERIALIZED VIEW m AS SELECT p, k FROM t; CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t; REFRESH"
    )
    spark.sql(f"{into} (3, TIMESTAMP'1969-12-31 00:00:00.000001'), (4, NULL)")
    ((text,),) = script.rows("EXPLAIN MATERIALIZED VIEW m")
    assert "2 appended file(s)" in text, text
    script.run("REFRESH; VERIFY")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k = 4")
    spark.sql(f"{into} (3, TIMESTAMP'1969-12-31 00:00:00.000001')")
    ((text,),) = script.rows("EXPLAIN MATERIALIZED VIEW m")
    assert "all rows of both versions, by Delta" in text
    script.run("REFRESH; VERIFY")
    assert script.rows("SELECT n FROM n") == [(4,)]
