"""Where rows come from: a view's query over nothing but the rows found gives the row again, for all kinds of operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.api import Input, Why, spark_rows, why
from relstate_dagster.jobs.catalog.relations import with_upstream_views
from relstate_dagster.jobs.declare import ViewDeclaration
from relstate_dagster.jobs.engine.instants import timestamp_sql
from relstate_dagster.jobs.inspect.comparable import comparable
from relstate_dagster.jobs.registration.registry import Registry
from relstate_dagster.state_lib.sql_text import quoted
from tests.epoch.scripts import Script

pytestmark = pytest.mark.spark

_SOURCES = """
CREATE TABLE orders (k INT, cust STRING, amount DOUBLE, day DATE, tags ARRAY<STRING>, PRIMARY KEY (k));
CREATE TABLE customers (cust STRING, region STRING, PRIMARY KEY (cust));
CREATE TABLE events (cust STRING, n INT, m MAP<STRING, INT>);
CREATE TABLE visits (cust STRING, at INT) TBLPROPERTIES ('delta.appendOnly' = 'true');
CREATE TABLE prices (item STRING, price INT, gone BOOLEAN, PRIMARY KEY (item))
TBLPROPERTIES ('source.kind' = 'upsert', 'source.deleted' = 'gone');
INSERT INTO orders VALUES
  (1, 'ann', 0.1, DATE'2026-01-01', array('a', 'b')), (2, 'ann', 0.2, DATE'2026-01-02', array()),
  (3, 'bob', 5, DATE'2026-01-02', NULL), (4, NULL, 7, NULL, array('a')),
  (5, 'dee', double('NaN'), DATE'2026-01-03', array('c')), (6, 'ann', 0.3, DATE'2026-01-01', array('b'));
INSERT INTO customers VALUES ('ann', 'W'), ('bob', 'W'), ('cid', 'E'), ('eve', NULL);
INSERT INTO events VALUES
  ('ann', 1, map('x', 1, 'y', 2)), ('ann', 1, map('y', 2, 'x', 1)), ('bob', 2, NULL), (NULL, NULL, map());
INSERT INTO visits VALUES ('ann', 1), ('ann', 1), ('bob', 9), ('ann', 3);
INSERT INTO prices VALUES ('pen', 1, false), ('cup', 2, false);
"""
#: Views by name: the query, a key, how many rows have it, and how many rows of each source make the first of them.
_VIEWS = {
    "by_region": (
        "SELECT region, sum(amount) AS total, count(*) AS n FROM orders JOIN customers USING (cust) GROUP BY region",
        *("region=W", 1, {"orders": 1, "customers": 1}),
    ),
    "both_sides": (
        "SELECT o.k, c.cust, o.amount FROM orders o FULL JOIN customers c ON o.cust = c.cust AND o.amount < 6",
        *("k=NULL, cust='bob'", 1, {"customers": 1, "orders": 0}),
    ),
    "details": (
        "SELECT k, o.cust, c.region, amount FROM orders o LEFT JOIN customers c ON o.cust = c.cust",
        *("k=5", 1, {"orders": 1, "customers": 1}),
    ),
    "either": (
        "SELECT cust FROM customers c WHERE region IS NULL OR EXISTS (SELECT 1 FROM orders o WHERE o.cust = c.cust)",
        *("cust=ann", 1, {"customers": 1, "orders": 3}),
    ),
    "stacked": (
        "SELECT cust, 'o' AS kind, k FROM orders UNION ALL SELECT cust, 'c', NULL FROM customers",
        *("cust=ann, kind=o", 3, {"orders": 1}),
    ),
    "names": ("SELECT DISTINCT cust FROM orders", "cust=ann", 1, {"orders": 3}),
    "ranked": (
        "SELECT k, cust, rank() OVER (PARTITION BY cust ORDER BY amount DESC) AS place FROM orders",
        *("k=1", 1, {"orders": 3}),
    ),
    "second": (
        "SELECT k, amount FROM orders WHERE amount < 6 ORDER BY amount DESC, k LIMIT 1 OFFSET 1",
        *("k=6", 1, {"orders": 2}),
    ),
    "newest": ("SELECT k, cust FROM orders ORDER BY k DESC LIMIT 2", "k=6", 1, {"orders": 1}),
    "cubed": (
        "SELECT cust, day, count(*) AS n FROM orders GROUP BY CUBE (cust, day) HAVING grouping(day) = 0",
        *("day=2026-01-01", 2, {"orders": 2}),
    ),
    "bag": ("SELECT cust, n * 2 AS twice, m FROM events", "cust=bob", 2, {"events": 2}),
    "less": ("SELECT cust FROM events EXCEPT ALL SELECT cust FROM customers", "cust=bob", 1, {"events": 2, "customers": 1}),
    "dear": ("SELECT item, price FROM prices WHERE price > 1", "item=cup", 1, {"prices_changelog": 3}),
    "over": ("SELECT n, count(*) AS regions FROM by_region GROUP BY n", "n=4", 1, {"orders": 4, "customers": 2}),
    "latest": (
        "SELECT cust, at FROM (SELECT *, row_number() OVER (PARTITION BY cust ORDER BY at DESC) AS r FROM visits) WHERE r = 1",
        *("at=3", 1, {"visits": 4}),
    ),
    "over_latest": ("SELECT sum(at) AS s FROM latest WHERE at < 10", "s=5", 1, {"visits": 5}),
    "recent": ("SELECT k, day FROM orders WHERE day > now() - INTERVAL 30 DAYS", "k=7", 1, {"orders": 1}),
    "aged": (
        "SELECT CASE WHEN day > now() - INTERVAL 30 DAYS THEN 'new' ELSE 'old' END AS age, "
        "count(*) FILTER (WHERE day > now()) AS n FROM orders GROUP BY 1",
        *("age=new", 1, {"orders": 1}),
    ),
    "in_full": ("SELECT cust, sum(n) AS n FROM events GROUP BY cust", "cust=bob", 1, {"events": 4}),
}
_FULL = {"in_full"}
_CHANGES = [
    """
    UPDATE orders SET amount = 0.4 WHERE k = 6; DELETE FROM orders WHERE k = 3;
    INSERT INTO orders VALUES (7, 'cid', 5.5, DATE'2026-01-05', array('a'));
    INSERT INTO events VALUES ('bob', 2, NULL), ('cid', 3, map('z', NULL));
    INSERT INTO visits VALUES ('bob', 10), ('eve', 2);
    INSERT INTO prices VALUES ('pen', 5, false); INSERT INTO prices VALUES ('cup', 2, true);
    """,
    """
    MERGE INTO customers c USING (SELECT * FROM VALUES ('ann', 'E'), ('dee', 'W') AS v (cust, region)) s ON c.cust = s.cust
      WHEN MATCHED THEN UPDATE SET region = s.region WHEN NOT MATCHED THEN INSERT *;
    DELETE FROM customers WHERE cust = 'eve'; DELETE FROM events WHERE n = 1;
    INSERT INTO visits VALUES ('ann', 2);
    INSERT INTO prices VALUES ('pen', 5, true), ('cup', 3, false);
    """,
]


class World:
    """A warehouse whose rows are asked about."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.time = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
        self.script = Script(spark, folder, clock=lambda: self.time)
        self.script.run(_SOURCES)
        declared = [
            ViewDeclaration(name=name, query=query, properties={"refresh.policy": "full"} if name in _FULL else {})
            for name, (query, *_) in _VIEWS.items()
        ]
        Registry(self.script.session._spark, self.script.warehouse).declare(declared)
        self.script.run("REFRESH")
        for change in _CHANGES:
            self.time += timedelta(days=1)
            self.script.run(f"{change} REFRESH")

    def epochs(self, view: str) -> tuple[int, ...]:
        return self.script.warehouse.read().views[view].epochs

    def why(self, view: str, key: Any, **asked: Any) -> Why:
        return why(self.spark, self.script.warehouse, view, key, **asked)

    def rows(self, view: str, epoch: int) -> DataFrame:
        return spark_rows(self.spark, self.script.warehouse, view, epoch)

    def again(self, found: Why, view: str) -> Counter[tuple[Any, ...]]:
        """The rows that the view's query gives over nothing but the rows that were found, as bags."""
        session = self.spark.newSession()
        state = self.script.warehouse.read()
        rows: dict[str, DataFrame] = {}
        for item in leaves(found.inputs):
            rows[item.name] = rows[item.name].union(item.frame).distinct() if item.name in rows else item.frame
        for name, source in state.sources.items():
            table = session.read.format("delta").load(source.path)
            at = rows.get(name)
            made = session.createDataFrame([tuple(r) for r in at.collect()], table.schema) if at is not None else table.limit(0)
            if source.is_changelog:
                # In the order in which the commits of these tests came.
                made = made.withColumn("_commit_version", F.expr("10 * price + IF(gone, 5, 0)"))
            made.createOrReplaceTempView(name)
        instant = state.epochs[found.epoch].instant
        for name in with_upstream_views(state, view):
            query = state.views[name].query.replace("now()", timestamp_sql(instant))
            session.sql(query).createOrReplaceTempView(name)
        return bag(session.table(view))


def leaves(inputs: tuple[Input, ...]) -> Iterator[Input]:
    for item in inputs:
        if item.is_view:
            yield from leaves(item.inputs)
        else:
            yield item


def bag(rows: DataFrame) -> Counter[tuple[Any, ...]]:
    types = {field.name: field.dataType for field in rows.schema.fields}
    texts = [F.expr(comparable(quoted(n), t)).cast("string") for n, t in types.items()]
    return Counter(tuple(row) for row in rows.select(*texts).collect())


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(spark, tmp_path_factory.mktemp("w"))


@pytest.mark.parametrize("view", _VIEWS)
def test_the_query_over_the_rows_found_gives_the_row(world: World, view: str) -> None:
    _, key, matched, counts = _VIEWS[view]
    found = world.why(view, key)
    assert found.matched == matched
    rows: dict[str, int] = {}
    for item in leaves(found.inputs):
        rows[item.name] = rows.get(item.name, 0) + item.rows
    assert rows == counts
    wanted = world.rows(view, found.epoch)
    for name, value in found.row.items():
        # The rest of the row, as Spark computes it again, may differ in the last digit.
        if not isinstance(value, float) and name != "m":
            wanted = wanted.where(F.col(quoted(name)).eqNullSafe(F.lit(value)))
    again = world.again(found, view)
    row = bag(wanted)
    assert row
    assert {r: again[r] for r in row} == dict(row)


def _changes(found: Why) -> dict[str, list[tuple[str, str | None, dict[str, Any]]]]:
    """What commits did, by source: inserted or deleted, their operation, and the row."""
    changes: dict[str, list[tuple[str, str | None, dict[str, Any]]]] = {}
    for item in leaves(found.inputs):
        operations = {commit.version: commit.operation for commit in item.commits}
        assert len(item.changes) <= item.inserted + item.deleted
        for change in item.changes:
            text = ("+" if change.inserted else "-", operations[change.version], dict(change.row))
            changes.setdefault(item.name, []).append(text)
    return changes


def test_what_changed_a_row_follows_to_the_commits(world: World) -> None:
    before, last = world.epochs("by_region")[-2:]
    found = world.why("by_region", {"region": "W"})
    assert (found.before, found.epoch, found.change) == (before, last, "changed")
    assert found.differing == ("total", "n")
    assert (found.old["n"], found.row["n"]) == (3, 1)
    # ann went to the other region, dee came; of orders nothing has changed.
    assert _changes(found) == {
        "customers": [("-", "MERGE", {"cust": "ann", "region": "W"}), ("+", "MERGE", {"cust": "dee", "region": "W"})]
    }
    # A row filled up with NULLs came because what had matched it went.
    found = world.why("both_sides", "k=NULL, cust=bob", epoch=before)
    assert found.change == "added"
    assert _changes(found) == {"orders": [("-", "DELETE", {"k": 3, "cust": "bob", "amount": 5.0})]}
    (orders,) = [item for item in found.inputs if item.name == "orders"]
    assert (orders.rows, orders.notes) == (0, ("no row matches",))
    # The side that was NULL is there now.
    found = world.why("details", "k=5")
    assert found.differing == ("region",)
    assert _changes(found) == {"customers": [("+", "MERGE", {"cust": "dee", "region": "W"})]}
    # Copies of a row that nothing tells apart.
    found = world.why("bag", "cust=bob", epoch=before)
    assert (found.change, found.copies) == ("changed", (2, 1))
    assert [(sign, row["n"]) for sign, _, row in _changes(found)["events"]] == [("+", 2)]
    # Through a view, to a table of upserts: a key that was deleted, and came again.
    found = world.why("dear", "item=cup")
    assert found.change == "added"
    assert [item.name for item in found.inputs] == ["prices"]
    assert [(sign, row["price"]) for sign, _, row in _changes(found)["prices_changelog"]] == [("+", 3)]
    # A row that is gone is explained as it was.
    found = world.why("dear", "item=cup", epoch=before)
    assert (found.change, found.row["price"], found.copies) == ("removed", 2, (0, 1))
    assert [(sign, row["gone"]) for sign, _, row in _changes(found)["prices_changelog"]] == [("+", True)]
    # A LIMIT picks another row, as one came that sorts before it.
    found = world.why("newest", "k=5", epoch=before)
    assert found.change == "removed"
    assert [(sign, row["k"]) for sign, _, row in _changes(found)["orders"]] == [("+", 7)]
    # Nothing to compare with.
    found = world.why("names", "cust=ann", epoch=world.epochs("names")[0])
    assert (found.change, found.before) == (None, None)
    assert "the first of this view" in found.notes[0]


def test_a_query_run_in_full_and_limits_say_what_they_do_not_show(world: World) -> None:
    assert "recomputed in full" in world.why("in_full", "cust=bob").notes[0]
    assert "LIMIT" in world.why("second", "k=6").inputs[0].notes[0]
