"""A view's operators over change sets made of Python rows, with real state and no publishing: the oracle is the query."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from decimal import Decimal
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from relstate_dagster.jobs.catalog.watermarks import Watermarks, WatermarkValue, merged
from relstate_dagster.jobs.declare.kept_rows import EXTREME_ROWS, SPARE_ROWS, WINDOW_ROWS
from relstate_dagster.jobs.engine.workloads import Workload, session_for
from relstate_dagster.jobs.inspect.verify import bag_difference
from relstate_dagster.jobs.operators.closed_groups import closed_groups
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.routing import compute_changes
from relstate_dagster.jobs.operators.row_set import RowSets
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.new_state import NO_NEW_STATE, NewState, Recompute
from relstate_dagster.jobs.plan.nodes import Field, PlanNode
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.plan.stateful_plan import StatefulPlan
from relstate_dagster.jobs.planner.current_time import query_at
from relstate_dagster.jobs.planner.planning import plan_view
from relstate_dagster.jobs.planner.query_settings import meaning_of
from relstate_dagster.jobs.view_epoch.compaction import expiring
from relstate_dagster.jobs.view_epoch.plan import run_limits
from relstate_dagster.state_lib.compaction import ClosedRows, ExpiredRows, rewrite_tables
from relstate_dagster.state_lib.constants import ROW_ID, WEIGHT
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.mem_table import MemTable
from relstate_dagster.state_lib.row_encoding import parse_type
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_store import StateStore
from relstate_dagster.state_lib.table_schema import StateTableDesc
from tests.operators.alternation import Alternation

Row = tuple[Any, ...]
Bag = dict[Row, int]

#: Relations that the tests' queries read: two keyed, one multiset, one append-only without a key.
RELATIONS = {
    "t": Relation(
        "t",
        (Field("k", "int", False), Field("g", "int"), Field("s", "string"), Field("v", "decimal(10,2)")),
        ("k",),
    ),
    "r": Relation("r", (Field("k", "int", False), Field("g", "int"), Field("w", "bigint")), ("k",)),
    "m": Relation("m", (Field("g", "int"), Field("s", "string"))),
    "e": Relation("e", (Field("g", "int"), Field("s", "string")), (ROW_ID,), True, (Field(ROW_ID, "bigint", False),)),
}


#: What the vnodes of state tables come to, in the third epoch.
_MOST_VNODES = 4

#: Checks run here, beside the epoch that follows.
_POOL = ThreadPoolExecutor(max_workers=2, thread_name_prefix="check")


def _lines_of(rows: DataFrame) -> list[str]:
    """A bag's rows as texts, sorted."""
    return sorted(map(repr, rows.collect()))


def _arrow_schema(schema: T.StructType) -> pa.Schema:
    """Timestamps are of UTC, as Spark before 4.2 has them without being asked."""
    asked = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **asked)


def decimal(value: int | None) -> Decimal | None:
    """A number of hundredths."""
    return None if value is None else Decimal(value) / 100


class _Relations:
    """A lab's relations in one epoch: everything is known of them."""

    def __init__(self, lab: Lab, changes: Mapping[str, list[tuple[Row, int]]], *, is_backfill: bool) -> None:
        self.lab = lab
        self._changes = changes
        self._is_backfill = is_backfill

    def changes(self, name: str) -> DataFrame | None:
        rows = self._changes.get(name, [])
        return self.lab.frame(name, rows) if rows or self._is_backfill else None

    def rows(self, name: str, _lookup_keys: LookupKeys | None) -> DataFrame:
        return self.lab.frame(name, self.lab.rows_after(name, self._changes.get(name, [])))

    def come_once(self) -> bool:
        """Of all rows: a relation without a key may have one twice."""
        for name, changed in self._changes.items():
            key = self.lab.relations[name].key
            places = [n for n, f in enumerate(self.lab.relations[name].columns) if key is None or f.name in key]
            rows = [tuple(repr(row[place]) for place in places) for row, _ in changed]
            if any(weight < 0 for _, weight in changed) or (key is not None and len(rows) > len(set(rows))):
                return False
        return True

    def gives_ids(self, _name: str) -> bool:
        return True

    def bag(self, name: str, _columns: Collection[str]) -> DataFrame:
        rows = self.lab.rows_after(name, self._changes.get(name, []))
        return self.lab.frame(name, [(row, 1) for row, weight in rows for _ in range(weight)]).drop(WEIGHT)

    def rows_between(self, name: str, column: str, lower: Column, upper: Column) -> DataFrame:
        return self.rows(name, None).where(F.col(f"`{column}`").between(lower, upper))

    def row_count(self, name: str) -> int:
        return sum(weight for _, weight in self.lab.rows_after(name, self._changes.get(name, [])))

    def rows_read(self, name: str, _lookup_keys: LookupKeys | None) -> float:
        return self.row_count(name)

    def sample(self, name: str) -> tuple[DataFrame, int]:
        return self.rows(name, None), self.row_count(name)

    def provably_absent_before(self, name: str, lookup_keys: LookupKeys) -> bool:
        """The whole truth, where statistics of files know less: no row of before has one of the values."""
        columns = self.lab.relations[name].columns
        place = [f.name for f in columns].index(lookup_keys.column)
        if columns[place].data_type in ("double", "timestamp"):
            return False  # NaN, and times in a zone, do not equal themselves in Python
        return not {row[place] for row, n in self.lab.bags[name].items() if n} & set(lookup_keys.values)


@dataclass
class Lab:
    """One view, its state, and the bags its relations hold.

    ``strict`` checks every operator's change sets; ``planned`` is a plan to run, for that of the query. ``recomputes`` is how
    the next epochs compute all rows, if they do.
    """

    spark: SparkSession
    query: str
    relations: Mapping[str, Relation] = field(default_factory=lambda: RELATIONS)
    views: Mapping[str, str] = field(default_factory=dict)
    bags: dict[str, Bag] = field(default_factory=dict)
    epoch: int = 0
    collect_shared: bool = True
    strict: bool = False
    extreme_rows: int = EXTREME_ROWS.default
    spare_rows: int = SPARE_ROWS.default
    window_rows: int = WINDOW_ROWS.default
    may_have_expired: bool = False
    watermarks: Watermarks = field(default_factory=dict)
    late_rows: int = 0
    instant: datetime = datetime(2024, 1, 1, tzinfo=timezone.utc)
    planned: StatefulPlan | None = None
    unfilled: frozenset[int] = frozenset()
    recomputes: Recompute | None = None

    def __post_init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        words = set(re.findall(r"\w+", " ".join([self.query, *self.views.values()])))
        self._read = {name: relation for name, relation in self.relations.items() if name in words}
        self.stateful = self.planned or StatefulPlan.allocate(plan_view(self.spark, self.query, self._read, self.views), 1)
        self.plan = self.stateful.root
        self.descs = self.stateful.tables
        self._session = session_for(self.spark, meaning_of(self.spark), Workload.SMALL)
        self._files = StateFiles(f"{self._folder.name}/state")
        self._store = StateStore(self._session, self._files, self.descs)
        self._store.create()
        self._version = 0
        self.bags = {name: {} for name in self.relations}
        self._last_check: _Check | None = None
        self.alternation = Alternation()

    def close(self) -> None:
        """Raise what the last check has found, and clean up."""
        try:
            self._end_last_check()
        finally:
            self._folder.cleanup()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, _type: object, problem: BaseException | None, _traceback: object) -> None:
        if problem is not None:
            self._last_check = None
        self.close()

    def step(self, changes: Mapping[str, list[tuple[Row, int]]], instant: datetime | None = None) -> None:
        """One epoch: changes by relation, as (row, weight); time moves on to ``instant`` if there is one."""
        self.epoch += 1
        last_instant, self.instant = self.instant, instant or self.instant
        first = self.epoch == 1
        # Vnodes double, as they do where tables grow: what earlier epochs have written lies where fewer of them put it.
        count = min(1 << (self.epoch - 1), _MOST_VNODES)
        grown = tuple(replace(d, vnode_count=count) if d.schema.distribution_key else d for d in self.descs)
        self.stateful = self.stateful.with_tables({d.table_id: d for d in grown})
        self._store = StateStore(self._session, self._files, grown)
        descs = self._node_tables()
        tables = {
            node: [self._store.state_table(d.table_id, epoch=self.epoch, version=self._version) for d in of_node]
            for node, of_node in descs.items()
        }

        context = EpochContext(
            epoch=self.epoch,
            new_state=self._new_state(first),
            recomputes=self.recomputes,
            node_ids={found.node: found.id for found in self.stateful.nodes},
            relations=_Relations(self, changes, is_backfill=first),
            tables=tables,
            row_sets=RowSets(
                self._session, shares_by_jobs=self.collect_shared, lookup_hint="shuffle_hash", limits=run_limits().driver
            ),
            full_query=lambda _n: None,
            extreme_rows=self.extreme_rows,
            spare_rows=self.spare_rows,
            window_rows=self.window_rows,
            instant=self.instant,
            last_instant=None if first else last_instant,
            strict=self.strict,
            may_have_expired=self.may_have_expired and not first,
            closed=closed_groups(self.plan, self.watermarks),
        )
        result = compute_changes(context, self.plan)
        self.unfilled = frozenset()
        self.late_rows = result.late_rows
        if self.strict:
            self.alternation.check(context.changes, self.epoch)
        mem_tables = [t.mem_table for of_node in tables.values() for t in of_node if not t.mem_table.is_empty]
        if mem_tables:
            self._version = self._commit(mem_tables)
        for name, rows in changes.items():
            for row, weight in rows:
                self.bags[name][row] = self.bags[name].get(row, 0) + weight
                assert self.bags[name][row] >= 0, f"the test itself retracts {row} of {name} too often"

    def expire(self, until: int | None = None) -> None:
        """What was last written in an epoch or before it expires, where it can; epochs after this one are told of it."""
        self._end_last_check()
        self.may_have_expired = True
        self._leave_out(expiring(self._node_tables(), self.epoch if until is None else until))

    def drop_closed(self, relation: str, column: str, value: int) -> int:
        """Groups closed by a watermark leave the state; how many aggregates that are in the plan have such groups."""
        self._end_last_check()
        reached = WatermarkValue(value, next(f.data_type for f in self.relations[relation].columns if f.name == column))
        self.watermarks = merged(self.watermarks, {relation: {column: reached}})
        found = closed_groups(self.plan, self.watermarks)
        tables = self._node_tables()
        self._leave_out({d.table_id: ClosedRows(closed.condition) for node, closed in found.items() for d in tables[node]})
        return len(found)

    def recompute(self, changes: Mapping[str, list[tuple[Row, int]]], *, fills: bool = False) -> None:
        """Compute all rows in an epoch, and keep no state, or fill it."""
        nodes = [found.node for found in self.stateful.nodes[:-1] if found.tables]
        if fills:
            self.drop_state(*nodes)
        self.recomputes = Recompute.WITH_STATE if fills else Recompute.WITHOUT_STATE
        try:
            self.step(changes)
        finally:
            self.recomputes = None

    def drop_state(self, *nodes: PlanNode) -> None:
        """Empty the state of some nodes: the next epoch fills it."""
        self._end_last_check()
        ids = {found.node: found.id for found in self.stateful.nodes}
        self.unfilled = frozenset(ids[node] for node in nodes)
        tables = self._node_tables()
        everything = ClosedRows(F.lit(True))
        self._leave_out({desc.table_id: everything for node in nodes for desc in tables[node]})

    def _new_state(self, is_first: bool) -> NewState:
        if self.recomputes is Recompute.WITHOUT_STATE:
            return NO_NEW_STATE
        return NewState(is_all=True) if is_first else NewState(self.unfilled)

    def _node_tables(self) -> dict[PlanNode, tuple[StateTableDesc, ...]]:
        return {found.node: found.tables for found in self.stateful.nodes}

    def _leave_out(self, gone: Mapping[int, ExpiredRows | ClosedRows]) -> None:
        if not gone:
            return
        number = 1000 + self.epoch
        done = rewrite_tables(self._store, list(gone), version=self._version, app_id="expiry", txn_version=number, expired=gone)
        assert done is not None
        self._version = done

    def stored(self) -> dict[str, DataFrame]:
        """The merged rows of each state table."""
        tables = [self._store.storage_table(desc.table_id, version=self._version) for desc in self._store.descs]
        return {f"{table.desc.table_id} {table.desc.schema.label}": table.scan() for table in tables}

    def _commit(self, mem_tables: list[MemTable]) -> int:
        """As a small epoch does it: by the driver, or by Spark where a type asks for it."""
        commit = {"txn_app_id": "lab", "txn_version": self.epoch, "user_metadata": f"e{self.epoch}"}
        most = run_limits().driver.collected_bytes
        rows = self._store.compute(self.epoch, mem_tables, most) if self._store.is_plain else None
        if rows is not None:
            return self._store.append_computed(self.epoch, rows, **commit)
        return self._store.append(self.epoch, mem_tables, partitions=2, **commit)

    def rows_after(self, name: str, changes: list[tuple[Row, int]]) -> list[tuple[Row, int]]:
        rows = dict(self.bags[name])
        for row, weight in changes:
            rows[row] = rows.get(row, 0) + weight
        return [(row, weight) for row, weight in rows.items() if weight]

    def frame(self, name: str, rows: list[tuple[Row, int]]) -> DataFrame:
        relation = self.relations[name]
        fields = [*relation.columns, *relation.hidden_columns]
        types = [*(parse_type(f.data_type) for f in fields), T.LongType()]
        schema = T.StructType([T.StructField(n, t) for n, t in zip([*(f.name for f in fields), WEIGHT], types, strict=True)])
        # As an Arrow table the rows are part of the plan, like the change sets of small epochs, and no job of their own.
        values = [[*row, weight] for row, weight in rows]
        arrow = _arrow_schema(schema)
        columns = [pa.array([row[n] for row in values], field.type) for n, field in enumerate(arrow)]
        return self._session.createDataFrame(pa.Table.from_arrays(columns, schema=arrow), schema)

    def view(self) -> DataFrame:
        """The view's merged rows as its reader sees them, duplicates as often as they occur."""
        merged = self._store.storage_table(self.descs[-1].table_id, version=self._version).scan()
        repeated = merged.withColumn("_copy", F.explode(F.sequence(F.lit(1).cast("bigint"), F.col(WEIGHT))))
        return repeated.select(*columns_of([o.column for o in self.plan.output]))

    def changes_of_view(self) -> int:
        """How many rows the view's change log has."""
        return self._store.storage_table(self.descs[-1].table_id, version=self._version).runs().count()

    def expected(self) -> DataFrame:
        """The query run in full by Spark on what the relations hold now."""
        session = self._session
        for name, relation in self._read.items():
            rows = [(row, 1) for row, n in self.bags[name].items() for _ in range(n)]
            visible = columns_of([f.name for f in relation.columns])
            self.frame(name, rows).select(*visible).createOrReplaceTempView(name)
        for name, query in self.views.items():
            session.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")
        return query_at(session, self.query, self.instant)

    def check(self, *, wait: bool = False) -> None:
        """View = query, as bags, both ways: told at the next check, or at the end, unless one waits. Epochs go on meanwhile."""
        self._end_last_check()
        names = [o.name for o in self.plan.output]
        self._last_check = _Check(self.query, self.epoch, self.expected().toDF(*names), self.view().toDF(*names))
        if wait:
            self._end_last_check()

    def _end_last_check(self) -> None:
        last, self._last_check = self._last_check, None
        if last is not None:
            last.raise_if_different()


class _Check:
    """A view and its query at one epoch, both being computed."""

    def __init__(self, query: str, epoch: int, expected: DataFrame, view: DataFrame) -> None:
        self._query, self._epoch = query, epoch
        self._frames = expected, view
        self._rows = [_POOL.submit(_lines_of, frame) for frame in self._frames]

    def raise_if_different(self) -> None:
        """Wait for both."""
        expected, view = (rows.result() for rows in self._rows)
        # The driver finds small bags alike sooner than a job does; what it finds different, it is not asked to judge.
        if expected == view:
            return
        missing, unexpected = bag_difference(*self._frames)
        if missing or unexpected:
            raise AssertionError(
                f"epoch {self._epoch}: {missing} rows missing, {unexpected} unexpected\nquery: {self._query}\n"
                f"expected {expected}\nview     {view}"
            )
