"""Rows of state by key and by prefix: what is found, as of which epoch, and which files are read for it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.declare import ViewDeclaration
from relstate_dagster.jobs.inspect.state_rows import state_rows
from relstate_dagster.jobs.registration.registry import Registry
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.state_lib.constants import TABLE_ID, VNODE, WEIGHT
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.lake.statistics import DataFile
from relstate_dagster.state_lib.state_files import StateFiles, partition_of
from relstate_dagster.state_lib.state_store import StateStore
from relstate_dagster.state_lib.table_schema import StateTableDesc
from tests.epoch.scripts import Script
from tests.sizes import Resized

_SETUP = """
CREATE TABLE trips (k INT, city STRING, day DATE, fare DECIMAL(9,2), mark BINARY, PRIMARY KEY (k));
INSERT INTO trips VALUES
  (1, 'Oslo, N', DATE'2026-01-01', 1.50, X'00FF'), (2, 'Oslo, N', DATE'2026-01-02', 2.00, X''),
  (3, NULL, NULL, NULL, NULL), (4, 'NULL', DATE'2026-01-01', 2.50, X'00'), (5, '', NULL, 2.50, X'00');
CREATE MATERIALIZED VIEW by_day AS SELECT city, day, sum(fare) AS total, count(*) AS n FROM trips GROUP BY city, day;
CREATE MATERIALIZED VIEW by_mark AS SELECT mark, fare, count(*) AS n FROM trips GROUP BY mark, fare;
"""


class Looked:
    """A warehouse whose state is looked into."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.script = Script(spark, folder)
        self.spark = spark

    def tables(self, view: str) -> list[StateTableDesc]:
        return list(self.script.warehouse.read().views[view].tables)

    def frame(self, view: str, table_id: int, **asked: Any) -> DataFrame:
        return state_rows(self.spark, self.script.warehouse, view, table_id, **asked)

    def rows(self, view: str, table_id: int, **asked: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.frame(view, table_id, **asked).collect()]

    def error(self, view: str, table_id: int, **asked: Any) -> str:
        with pytest.raises(DeclarationError) as caught:
            self.frame(view, table_id, **asked)
        return str(caught.value)


@pytest.fixture(scope="module")
def looked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Looked:
    looked = Looked(spark, tmp_path_factory.mktemp("warehouse"))
    looked.script.run(_SETUP)
    list(EpochRunner(spark, looked.script.warehouse).run(["by_day", "by_mark"]))
    looked.script.run("UPDATE trips SET fare = 10 WHERE k = 1")
    list(EpochRunner(spark, looked.script.warehouse).run(["by_day", "by_mark"]))
    return looked


def test_one_row_or_those_of_a_prefix(looked: Looked) -> None:
    total = looked.tables("by_day")[0]
    assert total.schema.label.startswith("sum")
    oslo = [("Oslo, N", dt.date(2026, 1, 1), Decimal("10.00"), 1), ("Oslo, N", dt.date(2026, 1, 2), Decimal("2.00"), 1)]
    by_prefix = [row[:4] for row in looked.rows("by_day", total.table_id, prefix="city='Oslo, N'")]
    assert by_prefix == oslo
    for key in (
        '["Oslo, N", "2026-01-02"]',
        "day=2026-01-02, city='Oslo, N'",
        ("Oslo, N", dt.date(2026, 1, 2)),
        {"day": dt.date(2026, 1, 2), "city": "Oslo, N"},
    ):
        (row,) = looked.rows("by_day", total.table_id, key=key)
        assert row[:4] == oslo[1]
    # NULL, the text NULL, and no text.
    for key, sum_of_it in (
        ("[null, null]", Decimal("0.00")),
        ('["NULL", "2026-01-01"]', Decimal("2.50")),
        ('["", null]', Decimal("2.50")),
    ):
        (row,) = looked.rows("by_day", total.table_id, key=key)
        assert row[2] == sum_of_it
    assert looked.rows("by_day", total.table_id, key='["Oslo", "2026-01-02"]') == []
    by_mark = looked.tables("by_mark")[0].table_id
    assert [row[:2] for row in looked.rows("by_mark", by_mark, key='["00ff", "10.00"]')] == [(b"\x00\xff", Decimal("10.00"))]
    assert [row[1] for row in looked.rows("by_mark", by_mark, prefix=[b"\x00"])] == [Decimal("2.50")]


def test_only_the_asked_columns_a_row_each(looked: Looked) -> None:
    mv = looked.tables("by_day")[-1]
    count = mv.schema.columns[-1].name
    frame = looked.frame("by_day", mv.table_id, columns=[count])
    assert frame.columns == [count, WEIGHT]
    # A row for each group, though all five have the same count.
    assert [tuple(row) for row in frame.collect()] == [(1, 1)] * 5


def test_as_of_an_epoch_that_is_retained(looked: Looked) -> None:
    first, last = looked.script.warehouse.read().views["by_day"].epochs
    total = looked.tables("by_day")[0].table_id
    key = '["Oslo, N", "2026-01-01"]'
    assert looked.rows("by_day", total, key=key, epoch=first)[0][2] == Decimal("1.50")
    assert looked.rows("by_day", total, key=key, epoch=last)[0][2] == Decimal("10.00")
    assert looked.error("by_day", total, epoch=77) == (f"epoch 77 of view by_day is not retained; retained are {first}, {last}")


def test_errors_say_what_there_is(looked: Looked) -> None:
    desc = looked.tables("by_day")[0]
    total, label, city = desc.table_id, desc.schema.label, desc.schema.storage_key[0].column
    assert "view by_day has no state table 999; it has [" in looked.error("by_day", 999)
    assert f"{label} has no column fares; it has {city}," in looked.error("by_day", total, columns=["fares"])
    assert "no column of sum(fare), count(*) is asked for; it has city" in looked.error("by_day", total, columns=[])
    assert "1 values for a key of 2" in looked.error("by_day", total, key="[null]")
    assert "3 values for a key of 2" in looked.error("by_day", total, prefix=["a", None, 1])
    assert "is not a date" in looked.error("by_day", total, key=["a", "2026-01-01"])
    assert "not both" in looked.error("by_day", total, key="[null, null]", prefix="[null]")
    assert "no materialized view named nothing" in looked.error("nothing", 1)
    never_run = ViewDeclaration("never_run", "SELECT k FROM trips")
    Registry(looked.spark, looked.script.warehouse).declare([never_run])
    assert "has no epoch yet" in looked.error("never_run", looked.tables("never_run")[0].table_id)


_MANY = """
CREATE TABLE t (k INT, g STRING, v INT, PRIMARY KEY (k));
INSERT INTO t SELECT id, concat('g', id % 500), id FROM range(2000);
CREATE MATERIALIZED VIEW tops AS SELECT g, max(v) AS top, count(*) AS n FROM t GROUP BY g;
REFRESH;
"""


def test_a_row_of_64_vnodes_is_looked_up_in_one(
    spark: SparkSession, tmp_path: Path, resized: Resized, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the tables had come to some gigabytes.
    resized(vnode_bytes=350)
    looked = Looked(spark, tmp_path / "warehouse")
    looked.script.run(_MANY)
    warehouse = looked.script.warehouse
    view = warehouse.read().views["tops"]
    desc = max(view.tables, key=lambda t: t.vnode_count)
    assert desc.vnode_count == 64
    # It has grown: its rows lie where one vnode, or one of the counts since, put them.
    script = looked.script
    script.run("UPDATE t SET v = v + 1 WHERE k % 2 = 0; REFRESH")
    assert 1 < len(_vnodes_read(looked, desc, "g8")) <= 11
    # Built again, it has its vnodes from the beginning.
    list(EpochRunner(spark, warehouse).run(full_refresh=["tops"]))
    desc = max(warehouse.read().views["tops"].tables, key=lambda t: t.vnode_count)
    for n in (0, 150, 499):
        assert len(_vnodes_read(looked, desc, f"g{n}")) == 1
        assert len(looked.frame("tops", desc.table_id, prefix=[f"g{n}"]).inputFiles()) == 1
    # So does an epoch, in each state table that it looks the one group up in.
    resized(vnode_bytes=350, whole_state_rows=0)
    opened: list[list[tuple[int, int]]] = []
    files_with = StateStore.files_with

    def record(self: StateStore, *given: Any) -> tuple[DataFile, ...]:
        found = files_with(self, *given)
        opened.append([partition_of(file) for file in found])
        return found

    with monkeypatch.context() as patched:
        patched.setattr(StateStore, "files_with", record)
        script.run("UPDATE t SET v = v + 1 WHERE g = 'g100'; REFRESH")
    tables = {t.table_id for t in warehouse.read().views["tops"].tables[:-1]}
    assert {table_id for lookup in opened for table_id, _ in lookup} >= {desc.table_id}
    for lookup in opened:
        assert len({part for part in lookup if part[0] in tables}) <= len({table_id for table_id, _ in lookup}), lookup
    assert len(looked.frame("tops", desc.table_id, prefix=["g100"]).inputFiles()) == 2, "a file of each of its two epochs"
    assert looked.rows("tops", desc.table_id, prefix=["g100"])
    assert looked.rows("tops", desc.table_id, prefix=["g"]) == []
    # A key that no file's range has opens none.
    assert looked.frame("tops", desc.table_id, prefix=["zzz"]).inputFiles() == []
    script.verify()


def _vnodes_read(looked: Looked, desc: StateTableDesc, group: str) -> set[int]:
    frame = looked.frame("tops", desc.table_id, prefix=[group])
    assert frame.count() >= 1
    entry = looked.script.warehouse.read().views["tops"]
    files = StateFiles(looked.script.warehouse.state_path(entry)).at(None)
    read = {name.rsplit("/", 1)[-1] for name in frame.inputFiles()}
    own = [f for f in files if f.path.rsplit("/", 1)[-1] in read]
    assert {f.partition[TABLE_ID] for f in own} == {desc.table_id}
    return {f.partition[VNODE] for f in own}
