"""However a change set is applied to a published table, and by whom: rows, change feed and report are the same."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, ViewReport, snapshot
from relstate_dagster.jobs.declare import parse_text
from relstate_dagster.jobs.declare.table_properties import table_properties
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.lake.log import DeltaLog, files_of
from relstate_dagster.state_lib.lake.statistics import data_files
from relstate_dagster.state_lib.lake.table import OpenedTable
from tests.epoch.scripts import Script
from tests.sizes import Resized, changed_sizes

_JOINED = "SELECT t.g, t.k, t.v, u.w FROM t LEFT JOIN u ON t.g = u.g"
_MARKS = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
_TABLES = """
CREATE TABLE t (k INT, g STRING, v INT, PRIMARY KEY (k));
CREATE TABLE u (g STRING, w INT, PRIMARY KEY (g));
INSERT INTO t VALUES (1, 'a b', 10), (2, NULL, 20), (3, 'ü/%41', 30), (4, 'a b', 40), (5, 'c', 40), (6, 'c', 60);
INSERT INTO u VALUES ('c', 1);
"""
_VIEWS = f"""
CREATE MATERIALIZED VIEW keyed {_MARKS} AS SELECT k, g, v FROM t;
CREATE MATERIALIZED VIEW copies {_MARKS} AS SELECT g, v > 30 AS is_much FROM t;
CREATE MATERIALIZED VIEW spaced CLUSTER BY (g) AS SELECT k AS `a key`, g, v FROM t WHERE v > 10;
CREATE MATERIALIZED VIEW joined PARTITIONED BY (g) AS {_JOINED};
"""
#: Who applies the change set of an epoch, and how: by the driver; by Spark, with the keys or with MERGE; and all by Spark.
_SIZES = {
    "driver": {},
    "replaced": {"driver_publish_bytes": 0},
    "merged": {"driver_publish_bytes": 0, "replaced_key_bytes": 0},
    "spark": {
        "driver_publish_bytes": 0,
        "driver_change_bytes": 0,
        "driver_backfill_bytes": 0,
        "driver_commit_bytes": 0,
        "driver_commit_rows": 0,
    },
    "spark merged": {
        "driver_publish_bytes": 0,
        "driver_change_bytes": 0,
        "driver_backfill_bytes": 0,
        "driver_commit_bytes": 0,
        "driver_commit_rows": 0,
        "replaced_key_bytes": 0,
    },
}


def _changed(rng: random.Random, number: int) -> str:
    new = 10 * number
    some = rng.sample(
        [
            f"INSERT INTO t VALUES ({new + 2}, 'c', 1), ({new + 3}, NULL, 70)",
            f"UPDATE t SET v = v + 7 WHERE k % 2 = {number % 2}; INSERT INTO t VALUES ({new}, 'größer', 35)",
            f"DELETE FROM t WHERE k % 5 = {number % 5}; INSERT INTO u VALUES ('x{number}', 3)",
            f"UPDATE t SET g = 'a b' WHERE k % 3 = {number % 3}; INSERT INTO t VALUES ({new + 1}, 'x{number}', 20)",
            f"UPDATE u SET w = w + 1; UPDATE t SET v = v + 2 WHERE k < 4; INSERT INTO u VALUES ('a b{number}', 5)",
        ],
        1 + number % 2,
    )
    return "; ".join(some)


def _way(report: ViewReport) -> str:
    (line,) = (line for line in report.stages if line.startswith("publish: "))
    return line.removeprefix("publish: ").split(" into")[0].split(",")[0]


def _published(spark: SparkSession, script: Script, view: str, before: int, report: ViewReport) -> None:
    """Published in one commit, and the change feed has the rows by which two versions differ."""
    path = script.warehouse.target(view).path
    names = [field.name for field in DeltaTable(path).schema().fields]

    def at(version: int) -> Counter[tuple[object, ...]]:
        rows = QueryBuilder().register("v", DeltaTable(path, version=version)).execute("SELECT * FROM v").read_all()
        return Counter(tuple(row[name] for name in names) for row in pa.table(rows).to_pylist())

    old, new = at(before), at(report.view_version)
    assert (report.rows_inserted, report.rows_deleted) == ((new - old).total(), (old - new).total()), report.stages
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", before + 1)
    told: Counter[tuple[object, ...]] = Counter()
    for row in feed.option("endingVersion", report.view_version).load(path).collect():
        assert row["_commit_version"] == report.view_version
        told[tuple(row[name] for name in names)] += 1 if row["_change_type"] in ("insert", "update_postimage") else -1
    new.subtract(old)
    assert {row: n for row, n in told.items() if n} == {row: n for row, n in new.items() if n}


def test_every_way_gives_the_same_rows(spark: SparkSession, script: Script) -> None:
    script.begin(f"{_TABLES} {_VIEWS} REFRESH")
    script.run("DROP MATERIALIZED VIEW spaced")  # which has mapped names: delta-rs knows none
    rng = random.Random(0)
    ways: dict[str, set[str]] = {}
    order = rng.sample(list(_SIZES), len(_SIZES))
    for number, how in enumerate(order, 1):
        script.run(_changed(rng, number))
        known = script.warehouse.read()
        versions = {view: known.versions_at(view).view_version for view in known.views}
        with changed_sizes(**_SIZES[how]):
            reports = list(EpochRunner(spark, script.warehouse).run())
        script.verify()
        for report in reports:
            if report.view_version != versions[report.view]:
                ways.setdefault(how, set()).add(_way(report))
                _published(spark, script, report.view, versions[report.view], report)
    assert ways["driver"] <= {"merge", "append"}
    assert ways["merged"] | ways["spark merged"] <= {"merge", "append", "replace all rows"}
    assert "replace by key" in ways["replaced"] | ways["spark"]
    assert "merge" not in ways["replaced"] | ways["spark"]


@pytest.mark.parametrize("how", ["replaced", "merged", "spark merged"])
def test_rows_that_all_change_are_replaced_together(spark: SparkSession, script: Script, how: str) -> None:
    """In a table with partitions as well.

    Of copies, a change set may have fewer rows than the table; and the log counts rows that are marked.
    """
    script.begin(f"{_TABLES} {_VIEWS} REFRESH")
    script.run("DROP MATERIALIZED VIEW spaced")
    for change, replaced in [
        ("UPDATE t SET v = v + 100", {"keyed", "joined"}),
        ("UPDATE t SET v = v + 1, g = 'elsewhere'; INSERT INTO t VALUES (9, 'new', 9)", {"keyed", "joined"}),
        ("UPDATE t SET v = v + 1 WHERE k > 1; INSERT INTO t VALUES (10, 'new', 9)", set()),
        ("DELETE FROM t", {"joined"}),
        ("INSERT INTO t VALUES (1, 'a', 1)", set()),
    ]:
        script.run(change)
        known = script.warehouse.read()
        versions = {view: known.versions_at(view).view_version for view in known.views}
        with changed_sizes(**_SIZES[how]):
            reports = list(EpochRunner(spark, script.warehouse).run())
        assert {report.view for report in reports if _way(report) == "replace all rows"} - {"copies"} == replaced, change
        script.verify()
        for report in reports:
            _published(spark, script, report.view, versions[report.view], report)


@pytest.mark.parametrize("how", ["driver", "replaced", "spark"])
def test_new_rows_touch_no_file_that_is_there(script: Script, how: str, spark: SparkSession) -> None:
    """Of a join and a view without a key, too; an update among them does."""
    script.begin(f"{_TABLES} {_VIEWS} REFRESH")
    script.run("INSERT INTO t VALUES (11, 'new', 1), (12, 'c', 50)")
    with changed_sizes(**_SIZES[how]):
        reports = list(EpochRunner(spark, script.warehouse).run())
    script.verify()
    assert {_way(report) for report in reports} == {"append"}
    for report in reports:
        commit = DeltaLog(script.warehouse.target(report.view).path).commit(report.view_version)
        recorded, added, removed = files_of(commit)
        assert (recorded, bool(added), removed) == ([], True, []), report.view


def test_deletion_vectors_spare_the_files_of_the_rest(script: Script, spark: SparkSession, resized: Resized) -> None:
    """In a view that has declared them, also where it did so when its table was there; and the driver goes on with them."""
    script.begin(f"{_TABLES} {_VIEWS} REFRESH")
    assert DeltaTable(script.warehouse.target("joined").path).protocol().reader_features is None
    with changed_sizes(**_SIZES["replaced"], advised_rows=1, advised_times=0):
        script.run("UPDATE t SET v = 2 WHERE k = 4")
        advice = {report.view: report.advice for report in EpochRunner(spark, script.warehouse).run()}
    assert advice["keyed"] == ()
    assert [line.split(" with ")[0] for line in advice["joined"]] == [
        "1 rows of the published table were written again beside 2 that have changed:"
    ]
    script.session._registry.declare(parse_text(f"CREATE MATERIALIZED VIEW joined PARTITIONED BY (g) {_MARKS} AS {_JOINED}"))
    resized(**_SIZES["replaced"])
    script.run("UPDATE t SET v = 1 WHERE k = 5; INSERT INTO t VALUES (7, 'd', 1); REFRESH; VERIFY")
    for view in ("keyed", "copies", "joined"):
        table = DeltaTable(script.warehouse.target(view).path)
        assert "deletionVectors" in table.protocol().reader_features, view
        assert table.deletion_vectors().read_all().num_rows, view
    resized(**_SIZES["driver"])
    script.run("UPDATE t SET v = v + 1 WHERE k < 5; DELETE FROM t WHERE k = 6; REFRESH; VERIFY")
    resized(**_SIZES["merged"])
    script.run("UPDATE t SET v = v + 1 WHERE k < 3; DELETE FROM t WHERE k = 5; REFRESH; VERIFY")
    list(EpochRunner(spark, script.warehouse).run(full_refresh=["keyed"]))
    script.run("VERIFY; UPDATE t SET v = 0; REFRESH; VERIFY")
    assert DeltaTable(script.warehouse.target("keyed").path).metadata().configuration["delta.enableDeletionVectors"] == "true"


def test_what_others_do_to_rows_that_are_marked_is_put_back(script: Script, spark: SparkSession, resized: Resized) -> None:
    restores = _MARKS.replace(")", ", 'publish.on_change' = 'restore')")
    script.begin(f"{_TABLES} CREATE MATERIALIZED VIEW keyed {restores} AS SELECT k, g, v FROM t; REFRESH")
    resized(**_SIZES["replaced"])
    script.run("UPDATE t SET v = 99 WHERE k = 4; REFRESH; VERIFY")
    path = script.warehouse.target("keyed").path
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k IN (1, 4)")
    script.run("UPDATE t SET v = 98 WHERE k IN (4, 5); REFRESH; VERIFY")
    spark.sql(f"UPDATE delta.`{path}` SET v = 0")
    resized(**_SIZES["driver"])
    script.run("UPDATE t SET v = 97 WHERE k IN (4, 6); REFRESH; VERIFY")
    script.run("UPDATE t SET v = 96 WHERE k IN (4, 6); REFRESH; VERIFY")


def test_small_files_are_put_together(script: Script, spark: SparkSession, resized: Resized) -> None:
    """Also where rows are marked; epochs of before can be read, and the change feed says nothing of it."""
    script.begin(f"{_TABLES} {_VIEWS} REFRESH")
    script.run("DROP MATERIALIZED VIEW spaced")
    resized(runs_per_partition=2, driver_publish_bytes=0)
    before = snapshot(script.warehouse).views["keyed"]
    rows = Counter(spark.read.format("delta").option("versionAsOf", before.version).load(before.path).collect())
    merged: Counter[str] = Counter()
    for n in range(6):
        changed = "UPDATE t SET v = v + 40 WHERE k IN (1, 20)" if n == 3 else f"INSERT INTO t VALUES ({20 + n}, 'c', {n})"
        script.run(f"{changed}; REFRESH")
        for view in ("keyed", "joined", "copies"):
            table = OpenedTable(script.warehouse.target(view).path)
            of_c = [file for file in data_files(table.latest()) if file.partition.get("g", "c") == "c"]
            assert len(of_c) <= 2, (view, n)
            merged[view] = sum(entry["operation"] == "OPTIMIZE" for entry in DeltaTable(table.path).history())
    script.verify()
    assert min(merged.values()) >= 2, merged
    assert Counter(spark.read.format("delta").option("versionAsOf", before.version).load(before.path).collect()) == rows
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", before.version + 1)
    told = Counter((row["k"], row["_change_type"]) for row in feed.load(before.path).where("k IN (1, 20, 21)").collect())
    assert told == {(20, "insert"): 2, (20, "delete"): 1, (1, "insert"): 1, (1, "delete"): 1, (21, "insert"): 1}


def test_properties_are_those_of_the_table(script: Script, spark: SparkSession) -> None:
    declared = "'delta.LOGRETENTIONDURATION' = '60 days', 'delta.checkpointInterval' = '5', 'team' = 'it''s `us`'"
    script.run(f"{_TABLES} CREATE MATERIALIZED VIEW m TBLPROPERTIES ({declared}) AS SELECT k, v FROM t; REFRESH")

    def properties() -> dict[str, str]:
        detail = spark.sql(f"DESCRIBE DETAIL delta.`{script.warehouse.target('m').path}`").first()
        return detail["properties"]

    expected = {"delta.logRetentionDuration": "interval 60 days", "delta.checkpointInterval": "5", "team": "it's `us`"}
    assert properties() == {"delta.enableChangeDataFeed": "true", **expected}
    edited = "'delta.enableChangeDataFeed' = 'FALSE', 'delta.deletedFileRetentionDuration' = 'interval 2 weeks', 'team' = 'x'"
    script.session._registry.declare(parse_text(f"CREATE MATERIALIZED VIEW m TBLPROPERTIES ({edited}) AS SELECT k, v FROM t"))
    script.run("UPDATE t SET v = 5 WHERE k = 1; REFRESH; VERIFY; UPDATE t SET v = 6 WHERE k = 1; REFRESH; VERIFY")
    changed = {"delta.enableChangeDataFeed": "false", "delta.deletedFileRetentionDuration": "interval 2 weeks", "team": "x"}
    assert properties() == {**expected, **changed}


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("'delta.appendOnly' = 'true'", "is none of those that the table of a view can have, which are delta.enableDel"),
        ("'DELTA.columnmapping.mode' = 'name'", "is none of those"),
        ("'delta.enableDeletionVectors' = 'yes'", "it is true or false"),
        ("'delta.logRetentionDuration' = 'soon'", "a length of time, as in 'interval 30 days'"),
        ("'delta.checkpointInterval' = '0'", "a number of commits"),
        ("'Owner' = 'me'", "Spark takes its name for something else"),
    ],
)
def test_properties_that_a_view_cannot_have_are_refused(declared: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        parse_text(f"CREATE MATERIALIZED VIEW m TBLPROPERTIES ({declared}) AS SELECT k FROM t")


def test_those_that_an_earlier_version_has_taken_are_left_out() -> None:
    properties = {"delta.appendOnly": "true", "delta.enableDeletionVectors": "perhaps", "team": "x", "refresh.policy": "auto"}
    assert table_properties(properties) == {"team": "x"}
