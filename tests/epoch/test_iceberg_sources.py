"""Iceberg tables as sources, written by PyIceberg.

Rows and changes are compared with its own reading of snapshots.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, IntegerType, LongType
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from relstate_dagster.cli import app
from relstate_dagster.jobs.sources.iceberg_source import IcebergSource
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.state_lib.errors import DeclarationError, SourceError
from tests.epoch.scripts import Script
from tests.iceberg_catalog import lake
from tests.operators.histories import seeds_of

pytestmark = pytest.mark.filterwarnings("ignore:Delete operation did not match any records")

_COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("g", pa.int32()),
        pa.field("s", pa.string()),
        pa.field("d", pa.date32()),
        pa.field("n", pa.decimal128(9, 2)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("l", pa.list_(pa.float64())),
        pa.field("p", pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string())])),
        pa.field("m", pa.map_(pa.string(), pa.int64())),
    ]
)
_DAY = dt.datetime(2026, 3, 1)
_ODD_FOLDER = "sales of ’24 %2F+"


def _row(chance: random.Random) -> dict[str, Any]:
    n = chance.randrange(12)
    return {
        "id": n,
        "g": chance.choice((None, 0, 1, 2)),
        "s": chance.choice((None, "", "a", "ü/%20", "x" * 40)),
        "d": _DAY.date() + dt.timedelta(n),
        "n": Decimal(n) / 4,
        "at": _DAY.replace(tzinfo=dt.timezone.utc) + dt.timedelta(hours=n),
        "local": _DAY + dt.timedelta(microseconds=n),
        "l": chance.choice((None, [], [1.5, None])),
        "p": chance.choice((None, {"a": n, "b": None})),
        "m": chance.choice((None, {"k": n})),
    }


def _rows(chance: random.Random, count: int) -> pa.Table:
    return pa.Table.from_pylist([_row(chance) for _ in range(count)], _COLUMNS)


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    return lake(monkeypatch, tmp_path, f"file://{tmp_path}/lake")


def _table(catalog: Catalog, tmp_path: Path, partitioned: str) -> Table:
    place = f"file://{tmp_path}/{_ODD_FOLDER}" if partitioned == "identity" else None
    table = catalog.create_table("sales.orders", _COLUMNS, location=place)
    with table.update_spec() as update:
        if partitioned == "identity":
            update.add_identity("s")
    return table


def _bag(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted((k, _plain(v)) for k, v in row.items() if v is not None)) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.timezone.utc).replace(tzinfo=None)
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted(value)  # a map
    if isinstance(value, dict):
        return sorted((k, v) for k, v in value.items() if v is not None)
    return value


def weights_of(rows: DataFrame | None) -> Counter[str]:
    """Weighted rows, as a bag in which weights count."""
    found: Counter[str] = Counter()
    if rows is None:
        return found
    for row in rows.toArrow().to_pylist():
        weight = row.pop("_weight")
        (name,) = _bag([row])
        found[name] += weight
    return Counter({name: weight for name, weight in found.items() if weight})


def rows_at(table: Table, pin: Pin) -> Counter[str]:
    if not pin.fingerprint:
        return Counter()
    return _bag(table.scan(snapshot_id=int(pin.fingerprint)).to_arrow().to_pylist())


def _append(table: Table, chance: random.Random) -> None:
    table.append(_rows(chance, chance.randrange(1, 8)).select(table.schema().as_arrow().names[: len(_COLUMNS.names)]))


def _delete(table: Table, chance: random.Random) -> None:
    table.delete(f"id < {chance.randrange(3, 7)}")


def _overwrite(table: Table, chance: random.Random) -> None:
    table.overwrite(_rows(chance, 3), overwrite_filter=f"id = {chance.randrange(12)}")


def _roll_back(table: Table, chance: random.Random) -> None:
    history = [entry.snapshot_id for entry in table.history()]
    table.manage_snapshots().set_current_snapshot(chance.choice(history)).commit()


@pytest.mark.parametrize("partitioned", ["none", "identity"])
def test_rows_and_changes_are_those_of_snapshots(
    spark: SparkSession, catalog: Catalog, tmp_path: Path, partitioned: str
) -> None:
    (seed, *_) = seeds_of(f"iceberg {partitioned}")
    chance = random.Random(seed)
    table = _table(catalog, tmp_path, partitioned)
    source = IcebergSource("orders", "iceberg:lake.sales.orders")
    pins = [source.pin(None)]
    steps: list[Callable[[Table, random.Random], None]] = [_append, _append, _delete, _overwrite, _append, _roll_back, _delete]
    for step in steps:
        table.refresh()
        step(table, chance)
        pins.append(source.pin(pins[-1]))
    table.refresh()
    assert pins[-1].is_same(source.pin(pins[-1]))
    assert [pin.version for pin in pins] == sorted({pin.version for pin in pins}), "versions grow, where it is rolled back too"
    for n, until in enumerate(pins):
        rows = rows_at(table, until)
        assert weights_of(source.all_rows(spark, until)) == rows
        assert source.totals(until)[1] == sum(rows.values())
        since = pins[chance.randrange(n + 1)]
        found = source.check_range(since, until, append_only=False)
        expected = Counter(rows)
        expected.subtract(rows_at(table, since))
        changes = source.changes(spark, since, until, found)
        assert weights_of(changes) == Counter({row: weight for row, weight in expected.items() if weight})
        assert found.rows_inserted - found.rows_deleted == sum(expected.values())
        again = source.pin(None, until=until.version)
        assert again.is_same(until)
    # Of a snapshot some files, the others, and what changed since.
    early = next(pin for pin in pins if len(source.files(pin).files) > 1)
    part = Pin.from_dict({**early.to_dict(), "first_files": 1})
    found = source.check_range(part, pins[-1], append_only=False)
    rest = weights_of(source.changes(spark, part, pins[-1], found))
    first = weights_of(source.files(part).read(spark, None).selectExpr("*", "1L AS _weight"))
    first.update(rest)
    assert Counter({row: weight for row, weight in first.items() if weight}) == rows_at(table, pins[-1])


def test_views_follow_a_table(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    chance = random.Random(seeds_of("iceberg views")[0])
    table = _table(catalog, tmp_path, "none")
    keyed = catalog.create_table("sales.people", pa.schema([pa.field("g", pa.int32()), pa.field("name", pa.string())]))
    keyed.append(pa.table({"g": pa.array([0, 1], pa.int32()), "name": ["zero", "one"]}))
    script = Script(spark, tmp_path / "warehouse")
    script.run(
        """
        CREATE TABLE orders USING iceberg TBLPROPERTIES ('source.table' = 'lake.sales.orders', 'index.columns' = 'g');
        CREATE TABLE people (PRIMARY KEY (g)) USING iceberg TBLPROPERTIES ('source.table' = 'lake.sales.people');
        CREATE MATERIALIZED VIEW totals AS
        SELECT p.name, sum(o.n) AS n, max(o.d) AS last, count(*) AS c FROM orders o LEFT JOIN people p ON o.g = p.g
        GROUP BY p.name;
        CREATE MATERIALIZED VIEW over AS SELECT count(*) AS names, sum(c) AS c FROM totals;
        """
    )
    for step in (_append, _append, _overwrite, _delete):
        step(table, chance)
        if step is _overwrite:
            keyed.overwrite(pa.table({"g": pa.array([1, 2], pa.int32()), "name": ["eins", None]}), overwrite_filter="g = 1")
        script.run("REFRESH; VERIFY")
        assert script.rows("SELECT count(*) FROM orders") == [(table.scan().count(),)]
    table.append(_rows(chance, 2))
    ((text,),) = script.rows("EXPLAIN MATERIALIZED VIEW totals")
    assert "1 added file(s)" in text
    table.delete("id >= 0")
    ((text,),) = script.rows("EXPLAIN MATERIALIZED VIEW totals")
    assert "netted: Iceberg records no changed rows" in text
    # A column that came new, and one of a wider type.
    with table.update_schema() as update:
        update.add_column("extra", DoubleType())
        update.update_column("g", LongType())
    error = script.error("REFRESH")
    assert "the type of column g changed from int to bigint" in str(error)
    script.run("DROP MATERIALIZED VIEW over; DROP MATERIALIZED VIEW totals")
    script.run("CREATE MATERIALIZED VIEW extras AS SELECT g, sum(extra) AS e, count(*) AS n FROM orders GROUP BY g")
    wider = _rows(chance, 4).append_column("extra", pa.array([1.5, None, 2.5, 3.5]))
    table.append(wider.set_column(1, "g", wider["g"].cast(pa.int64())))
    script.run("REFRESH; VERIFY")
    assert script.rows("SELECT sum(e) FROM extras") == [(7.5,)]
    assert "is an Iceberg table, which is only read here" in str(script.error("INSERT INTO people VALUES (5, 'five')"))


def test_what_cannot_be_read_is_refused(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    chance = random.Random(1)
    table = _table(catalog, tmp_path, "none")
    table.append(_rows(chance, 3))
    source = IcebergSource("orders", "iceberg:lake.sales.orders")
    first = source.pin(None)
    table.append(_rows(chance, 3))
    second = source.pin(first)
    with pytest.raises(SourceError, match="has no version"):
        source.check_version(second.version + 1)
    source.check_version(first.version)
    source.check_version(1)  # before the first one: no rows
    table.maintenance.expire_snapshots().by_id(int(first.fingerprint)).commit()
    third = source.pin(second)
    assert third.is_same(second)
    with pytest.raises(SourceError, match="no version 1 any more: its snapshots have expired"):
        source.check_version(1)
    with pytest.raises(SourceError, match=r"the snapshot of version \d+ has expired; rebuild"):
        IcebergSource("orders", "iceberg:lake.sales.orders").check_range(first, third, append_only=False)
    table.refresh()
    table.delete("id >= 0")
    with pytest.raises(SourceError, match="is declared append-only, but rows were updated or deleted"):
        source.check_range(second, source.pin(None), append_only=True)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("g")
    source.pin(None)
    with table.update_schema() as update:
        update.add_column("g", IntegerType())
    with pytest.raises(SourceError, match="column g was dropped, and another one was added under its name"):
        source.facts()
    with table.update_schema() as update:
        update.rename_column("g", "group")
        update.rename_column(("p", "a"), "first")
    with pytest.raises(SourceError, match=r"column .* was called .* before\. Files are read by the names"):
        source.pin(None)
    whole = catalog.create_table("sales.damaged", _COLUMNS)
    whole.append(_rows(chance, 3))
    for manifest in whole.current_snapshot().manifests(whole.io):
        Path(manifest.manifest_path.removeprefix("file://")).unlink()
    with pytest.raises(SourceError, match=r"the files of snapshot \d+ cannot be listed: FileNotFoundError"):
        IcebergSource("damaged", "iceberg:lake.sales.damaged").totals()
    catalog.drop_table("sales.orders")
    with pytest.raises(SourceError, match="cannot be opened: NoSuchTableError"):
        source.pin(None)
    catalog.create_table("sales.orders", _COLUMNS)
    with pytest.raises(SourceError, match="is another table than at version"):
        source.check_range(second, source.pin(None), append_only=False)
    with pytest.raises(SourceError, match=r"needs metadata/version-hint\.text"):
        IcebergSource("orders", f"{tmp_path}/lake").pin(None)


def test_the_verbs(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    table = _table(catalog, tmp_path, "none")
    rows = _rows(random.Random(2), 6)
    table.append(rows.set_column(1, "g", pa.array([7, 7, 7, 8, 8, None], pa.int32())))
    project, warehouse = tmp_path / "project", tmp_path / "warehouse"
    project.mkdir()
    (project / "views.sql").write_text(
        "CREATE TABLE orders USING iceberg TBLPROPERTIES ('source.table' = 'lake.sales.orders');"
        "CREATE MATERIALIZED VIEW counts AS SELECT g, count(*) AS n FROM orders GROUP BY g"
    )
    (project / "counts.test.yaml").write_text(
        "tests: [{name: two, given: {orders: [{id: 1, g: 7}, {id: 2, g: 7}]}, expect: [{g: 7, n: 2}]}]"
    )

    def verb(name: str, *arguments: str, with_project: bool = True) -> str:
        options = ["--project", str(project)] if with_project else []
        done = CliRunner().invoke(app, [name, *arguments, "--warehouse", str(warehouse), *options])
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output

    assert "orders" in verb("plan"), "its bytes, where the view is not built"
    assert "1 passed, 0 failed" in verb("test")
    verb("run")
    assert "3 rows" in verb("why", "counts", "--key", "g=7", with_project=False)
    table.delete("g = 8")
    verb("run")
    answer = verb("why", "counts", "--key", "g=7", with_project=False)
    assert "does not say which" in " ".join(answer.split())
    assert str(table.metadata.snapshot_log[-1].timestamp_ms) in verb("status", with_project=False)


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ("t USING iceberg", "neither columns nor a LOCATION"),
        ("t (PRIMARY KEY (id)) USING iceberg LOCATION '/a' TBLPROPERTIES ('source.table' = 'a.b.c')", "needs either"),
        ("t USING iceberg TBLPROPERTIES ('source.table' = 'b.c')", "is no name of an Iceberg table"),
        ("t (id INT) USING iceberg LOCATION '/a'", "columns cannot be declared of an Iceberg table"),
        ("t USING iceberg LOCATION '/a' TBLPROPERTIES ('delta.appendOnly' = 'true')", "'delta.appendOnly' cannot be declared"),
        ("t USING iceberg LOCATION '/a' OPTIONS (x '1')", "OPTIONS say how files are read"),
        ("t USING iceberg TBLPROPERTIES ('source.table' = 'nowhere.b.c')", "cannot be opened"),
    ],
)
def test_declarations_that_are_refused(script: Script, declared: str, problem: str) -> None:
    error = script.error(f"CREATE TABLE {declared}")
    assert problem in str(error)
    assert isinstance(error, (DeclarationError, SourceError))
    assert not script.warehouse.read().sources
