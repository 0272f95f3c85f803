"""What an operator may use while an epoch runs: its inputs' change sets, its state tables, and nothing else.

Operators only describe DataFrames; the epoch runner alone commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.util import inheritable_thread_target

from jobs.declare.kept_rows import EXTREME_ROWS, SPARE_ROWS
from jobs.operators.one_pass import FusedColumns
from jobs.operators.side_by_side import SideBySide
from jobs.planner.in_place import is_only_read
from jobs.planner.nodes import FullQuery, PlanNode, quoted
from jobs.spark.session import SHUFFLE_PARTITIONS
from state_lib.collected import collected, consolidated, frame_of, nullable_within, sums_as_spark
from state_lib.constants import WEIGHT
from state_lib.lake.commit import is_plain
from state_lib.lookup_keys import LookupKeys
from state_lib.state_table import StateTable

T = TypeVar("T")


@dataclass(slots=True)
class EpochContext:
    """One epoch of one view.

    Parameters
    ----------
    spark : the session that the epoch's DataFrames belong to.
    epoch : the epoch that is being computed.
    is_backfill : whether the view has no earlier epoch, so that all its state is empty.
    scan : gives a relation's change set, or ``None`` where nothing changed in it.
    tables : the state tables of each node, in the order of ``infer_state_tables``.
    rows_now : gives a relation's rows as of this epoch with ``_weight``, at least those that are within some values.
    full_query : runs a query in full and gives its difference to what the view holds.
    provably_absent_before : whether it is certain, without reading, that none of the rows that a relation had as of the view's
        last epoch has one of some values.
    row_count : how many rows a relation has as of this epoch; ``None`` where that is not known without reading it.
    rows_read : about how many of them are read if those within some values are asked for; ``None`` where that is not known.
    sample : some of its rows, as ``rows_now`` gives them, and how many these are; ``None`` where that is not known.
    lookup_hint : how change sets meet state. ``broadcast``: sent to every task, each reads the state where it lies.
        ``shuffle_hash``: hashed by the task that reads the state, which suits state that one task reads: a broadcast
        is a job of its own. None: change sets are too large for either, Spark chooses.
    collect_shared : whether shared change sets are computed at once and held by the driver: a job for each, but plans
        stay small, lookups skip what cannot hold their keys, and what turns out to be empty ends there.
    most_partitions : of a shuffle, once a change has turned out to meet more rows than the driver may hold.
    extreme_rows, spare_rows : how many rows are kept apart, as the view's properties say.
    instant, last_instant : of this epoch and of the view's last one; what ``now()`` is.
    steps : runs what does not need each other at the same time, for as long as the operators run.
    fused_columns : state rows that change sets carry on their way to the view.
    changes : the change set of each node whose operator has run.
    """

    spark: SparkSession
    epoch: int
    is_backfill: bool
    scan: Callable[[str], DataFrame | None]
    tables: Mapping[PlanNode, Sequence[StateTable]]
    rows_now: Callable[[str, LookupKeys | None], DataFrame]
    full_query: Callable[[FullQuery], DataFrame | None]
    provably_absent_before: Callable[[str, LookupKeys], bool] = lambda _name, _keys: False
    row_count: Callable[[str], int | None] = lambda _name: None
    rows_read: Callable[[str, LookupKeys | None], float | None] = lambda _name, _keys: None
    sample: Callable[[str], tuple[DataFrame, int] | None] = lambda _name: None
    lookup_hint: str | None = "broadcast"
    collect_shared: bool = False
    most_partitions: str | None = None
    extreme_rows: int = EXTREME_ROWS.default
    spare_rows: int = SPARE_ROWS.default
    instant: datetime | None = None
    last_instant: datetime | None = None
    steps: SideBySide = field(default_factory=SideBySide)
    fused_columns: FusedColumns = field(default_factory=FusedColumns)
    changes: dict[PlanNode, DataFrame | None] = field(default_factory=dict)
    _shared: dict[tuple[int, bool], tuple[DataFrame, DataFrame]] = field(default_factory=dict)
    _rows: dict[int, pa.Table] = field(default_factory=dict)
    _derived: dict[int, tuple[DataFrame, pa.Table]] = field(default_factory=dict)
    _large: set[int] = field(default_factory=set)

    def share(self, df: DataFrame, sought_by: Sequence[str] = (), *, summed: bool = False) -> DataFrame:
        """The same rows, computed once however many consumers they have.

        A local checkpoint and not a cache: it cuts the logical plan, which would otherwise double at every use. With
        ``collect_shared`` the rows are computed now and held by the driver, so that lookups know what they look for, and
        what cancels is gone.

        Parameters
        ----------
        sought_by : the columns by which others are looked up. A frame that was :meth:`derived` is returned as it is if the
            values of these are known.
        summed : whether a consumer needs equal rows summed and zeros dropped. Rows that the driver holds it sums itself,
            which saves Spark a shuffle.
        """
        # What is shared already is what is summed, if that is asked for later.
        _, df = self._shared.get((id(df), False), (df, df))
        if (id(df), summed) in self._shared:
            return self._shared[id(df), summed][1]
        derived = self._derived.get(id(df))
        if derived is not None and not summed and set(sought_by) <= set(derived[1].column_names):
            return df
        shared = self._on_driver(df, summed) if self._is_held(df) else self._checkpointed(df, summed)
        for frame in (df, shared):
            for is_summed in {False, summed}:
                self._shared.setdefault((id(frame), is_summed), (frame, shared))
        return shared

    def _is_held(self, df: DataFrame) -> bool:
        return self.collect_shared and all(is_plain(f.dataType) for f in df.schema.fields)

    def _on_driver(self, df: DataFrame, summed: bool) -> DataFrame:
        """Rows on the driver, if it may hold them."""
        if summed and not sums_as_spark(df.schema):
            df, summed = _summed(df), False
        rows, whole = self._rows.get(id(df)), df
        if rows is None:
            whole = nullable_within(df)
            rows = collected(whole)
        if rows is None:
            # The tasks of a shuffle were reckoned from what changed, which has met far more.
            if self.most_partitions is not None:
                self.spark.conf.set(SHUFFLE_PARTITIONS, self.most_partitions)
            shared = self._checkpointed(df, summed)
            self._large.add(id(shared))
            return shared
        return self.held(consolidated(rows, whatever_it_costs=summed), whole.schema)

    @staticmethod
    def _checkpointed(df: DataFrame, summed: bool) -> DataFrame:
        return (_summed(df) if summed else df).localCheckpoint(eager=False)

    def is_read_again(self, node: PlanNode) -> bool:
        """Whether each reader of a node's rows reads them again: all rows of sources are more than should be held."""
        return self.is_backfill and not self.collect_shared and is_only_read(node)

    def derived(self, df: DataFrame, known: pa.Table) -> DataFrame:
        """Note that a frame is made row by row of rows that the driver holds, so that nothing is saved by computing it once.

        Parameters
        ----------
        known : at least the values that some of its columns have, under their names. The frame has rows if this has any.
        """
        self._derived[id(df)] = (df, known)
        return df

    def held(self, rows: pa.Table, schema: StructType) -> DataFrame:
        """A shared frame of rows that the driver has."""
        frame = frame_of(self.spark, rows, schema)
        self._shared[id(frame), False] = (frame, frame)
        self._rows[id(frame)] = rows
        return frame

    def known_of(self, df: DataFrame) -> pa.Table | None:
        """The values known of a derived frame, or the rows of a shared one that the driver holds."""
        derived = self._derived.get(id(df))
        return self.rows_of(df) if derived is None else derived[1]

    def at_once(self, *calls: Callable[[], T]) -> list[T]:
        """The results of calls that do not need each other. They run at the same time where sharing is computing."""
        if not self.collect_shared:
            return [call() for call in calls]
        # Jobs of another thread would be of no job group, and in no pool. Each needs properties of its own: Spark notes in
        # them which query a thread is running.
        return self.steps.all(*calls[:1], *(inheritable_thread_target(self.spark)(call) for call in calls[1:]))

    @property
    def one_task(self) -> bool:
        """Whether one task does what comes after a shuffle: little has changed, and has met no more than the driver holds."""
        return self.spark.conf.get(SHUFFLE_PARTITIONS) == "1"

    def is_empty(self, df: DataFrame) -> bool:
        """Whether a shared frame is known to have no rows."""
        rows = self.rows_of(df)
        return rows is not None and rows.num_rows == 0

    def rows_of(self, df: DataFrame) -> pa.Table | None:
        """The rows of a shared frame, where the driver holds them."""
        return self._rows.get(id(df))

    def lookup_keys(self, df: DataFrame, on: Sequence[tuple[str, str]], *, null_safe: bool = False) -> LookupKeys | None:
        """What a lookup by a shared frame looks for, where that is known.

        Parameters
        ----------
        df : a frame that was shared, or derived from one.
        on : pairs of a state column and the column of the frame it equals, as the state is sorted.
        null_safe : whether NULL equals NULL.
        """
        known = self.known_of(df)
        if known is None or not on or on[0][1] not in known.column_names:
            return None
        ours, theirs = on[0]
        return LookupKeys.of(ours, known[theirs], null_safe=null_safe)

    def hint(self, df: DataFrame) -> str | None:
        """How a shared frame meets what it looks up: Spark chooses where it turned out too large to be sent around."""
        return None if id(df) in self._large else self.lookup_hint

    def small(self, df: DataFrame, derived: DataFrame) -> DataFrame:
        """What was derived from a shared frame, row by row, as the build side of a lookup."""
        hint = self.hint(df)
        return derived.hint(hint) if hint else derived


def columns_of(names: Sequence[str]) -> list[str]:
    """Column names quoted, for the DataFrame API, which would take a dot for a field access."""
    return [quoted(name) for name in names]


def consolidate(df: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Equal rows summed, zeros dropped: what makes a bag of weighted rows a Z-set."""
    summed = df.groupBy(*columns_of(columns)).agg(F.sum(WEIGHT).alias(WEIGHT))
    return summed.where(F.col(WEIGHT) != 0)


def _summed(df: DataFrame) -> DataFrame:
    return consolidate(df, [name for name in df.columns if name != WEIGHT])


def repeat_by_weight(df: DataFrame, weight: str) -> DataFrame:
    """Each row as often as its weight says, without the weight; rows of weight 0 or less vanish."""
    copies = df.where(F.col(weight) > 0)
    repeated = copies.withColumn(weight, F.explode(F.sequence(F.lit(1).cast("bigint"), F.col(weight))))
    return repeated.drop(weight)
