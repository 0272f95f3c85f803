"""Weighted rows between operators, held by the driver or computed by Spark.

The contract of a :class:`RowSet`:

* Columns: those of a plan node and ``_weight``; on their way to the view also state rows (:mod:`.jobs.operators.one_pass`).
* Weights: equal rows may be there several times, and may cancel out. Summed, they are there once, with no weight of 0.
* As a DataFrame: always, by ``frame``. Rows that the driver holds are handed to Spark when that is first asked for.
* Computed: once, by ``shared``. Where they are computed, and by whom rows are summed, is decided here alone.
* Counted: never by a job. ``is_empty``, ``most_rows``, ``flow`` and ``known_weight`` say what is known already.
* Let go: with the last that refers to it. No row set refers to the one that it was made of, only to its shared form.

So no operator asks where rows are. It asks for a fact, and gets what is known, or for rows, and gets them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from relstate_dagster.jobs.operators.z_sets import columns_of, sum_equal_rows
from relstate_dagster.state_lib.collected import (
    DriverLimits,
    HeldRows,
    collected,
    consolidated,
    held_rows,
    nullable_within,
    rows_within,
    sums_as_spark,
)
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.key_rows import KeyRows
from relstate_dagster.state_lib.lake.commit import is_plain
from relstate_dagster.state_lib.local_checkpoint import local_checkpoint
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.row_sums import Typed
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.table_schema import StateColumn


class DriverLimitExceeded(Exception):
    """A change set planned for the driver has more rows than it may hold.

    Attributes
    ----------
    found : bytes in memory, at least.
    limit : bytes that the driver holds.
    """

    def __init__(self, found: int, limit: int) -> None:
        super().__init__(f"a change set takes at least {found:,} bytes, and the driver holds {limit:,}")
        self.found = found
        self.limit = limit


@dataclass(frozen=True, slots=True)
class RowSets:
    """Makes the row sets of an epoch, as its plan says.

    Parameters
    ----------
    spark : the session that they belong to.
    shares_by_jobs : whether shared rows are computed at once and held by the driver. That is a job for each, but
        plans stay small, lookups know their keys, and an empty change set ends there.
    lookup_hint : how change sets meet state. ``broadcast``: sent to every task, each reads the state where it lies.
        ``shuffle_hash``: hashed by the task that reads the state, which suits state that one task reads: a broadcast
        is a job of its own. None: change sets are too large for either, Spark chooses.
    single_partition : whether one task does what comes after a shuffle: little has changed.
    limits : of the rows that the driver holds.
    keeps_bytes : whether Spark keeps rows that are computed once as bytes. Objects are read faster, and fill the heap.
    """

    spark: SparkSession
    shares_by_jobs: bool = False
    lookup_hint: str | None = "broadcast"
    single_partition: bool = True
    limits: DriverLimits = field(default_factory=DriverLimits)
    keeps_bytes: bool = False

    def of(self, frame: DataFrame) -> RowSet:
        """Rows that Spark computes."""
        return RowSet(self, frame)

    def shared(self, frame: DataFrame, *, summed: bool = False) -> RowSet:
        """Rows of a frame, computed once; as of :meth:`RowSet.shared`."""
        return self.of(frame).shared(summed=summed)

    def of_rows(self, rows: pa.Table, schema: StructType) -> RowSet:
        """Rows that the driver has."""
        return RowSet(self, None, HeldRows(rows, schema), is_shared=True)

    def none(self, columns: Sequence[Typed]) -> RowSet:
        """No rows of some columns."""
        weighted = [*columns, StateColumn(WEIGHT, "bigint")]
        return self.of(self.spark.createDataFrame([], ", ".join(f"{quoted(c.name)} {c.data_type}" for c in weighted)))

    def few(self, frame: DataFrame, most_rows: int) -> RowSet | None:
        """Rows of a frame, held by the driver; ``None`` if they are more."""
        found = held_rows(frame, self.limits.collected_bytes)
        return None if found is None or found.rows.num_rows > most_rows else self.of_rows(found.rows, found.schema)

    def checkpointed(self, frame: DataFrame, *, eager: bool = False) -> DataFrame:
        """A frame whose rows Spark computes once, at the latest when they are first read."""
        # Of these names, which are PySpark's, only the second means objects.
        level = StorageLevel.MEMORY_AND_DISK if self.keeps_bytes else StorageLevel.MEMORY_AND_DISK_DESER
        return local_checkpoint(frame, eager=eager, level=level)

    def hinted(self, frame: DataFrame) -> DataFrame:
        """A small frame, as the build side of a lookup."""
        return frame.hint(self.lookup_hint) if self.lookup_hint else frame


class RowSet:
    """Weighted rows; see the contract above.

    Parameters
    ----------
    sets : of its epoch.
    frame : the rows, where Spark computes them.
    held : the rows, where the driver holds them.
    known : values that some columns have at least, where rows are made one by one of rows that the driver holds. There are
        no rows if there are no values.
    is_shared, is_summed : what has been done.
    is_large : whether the rows may be too many to be sent to every task.
    """

    __slots__ = ("_frame", "_held", "_is_large", "_is_shared", "_is_summed", "_known", "_sets", "_shared", "_summed")

    def __init__(
        self,
        sets: RowSets,
        frame: DataFrame | None,
        held: HeldRows | None = None,
        *,
        known: pa.Table | None = None,
        is_shared: bool = False,
        is_large: bool = False,
    ) -> None:
        self._sets = sets
        self._frame = frame
        self._held = held
        self._known = known
        self._is_shared = is_shared
        self._is_summed = False
        self._is_large = is_large
        self._shared: RowSet | None = None
        self._summed: RowSet | None = None

    @property
    def frame(self) -> DataFrame:
        """The rows as a DataFrame."""
        if self._frame is None:
            assert self._held is not None
            self._frame = self._held.frame(self._sets.spark)
        return self._frame

    def shared(self, wanted_by: Sequence[str] = (), *, summed: bool = False) -> RowSet:
        """The same rows, computed once however many consumers they have.

        By the driver, or in a local checkpoint and not a cache: it cuts the logical plan, which would otherwise double at every
        use.

        Parameters
        ----------
        wanted_by : the columns by which others are looked up. Rows made one by one of held ones are returned unchanged if the
            values of these are known.
        summed : whether a consumer needs equal rows summed and zeros dropped. Rows that the driver holds it sums itself,
            which saves Spark a shuffle.

        Raises
        ------
        DriverLimitExceeded : the rows were planned for the driver, and are too many.
        """
        origin = self._shared or self  # what is shared already is what is summed, if that is asked for later
        if origin._is_summed or (origin._is_shared and not summed):
            return origin
        if origin._summed is not None:
            return origin._summed
        if origin._known is not None and not summed and set(wanted_by) <= set(origin._known.column_names):
            return origin
        done = origin._computed(summed=summed)
        done._is_shared, done._is_summed = True, summed
        if origin._is_shared:
            origin._summed = done
        else:
            origin._shared = done
        return done

    def derived(self, frame: DataFrame, passed_on: Mapping[str, str], where: str | None = None) -> RowSet:
        """Rows made of each of these; computing them once would save nothing.

        Parameters
        ----------
        frame : the rows.
        passed_on : its columns that have values of these rows, each with their column.
        where : a flag of the rows that it has rows of.
        """
        known = self._values
        if known is None:
            return self._sets.of(frame)
        if where is not None:
            known = known.filter(known[where])
        return RowSet(self._sets, frame, known=known.select(list(passed_on.values())).rename_columns(list(passed_on)))

    def projected(self, frame: DataFrame, passed_on: Mapping[str, str], *, is_whole: bool) -> RowSet:
        """As :meth:`derived`, without rows that cancel in the columns that are left.

        Rows of the driver that have become equal are summed, if that is cheap and leaves fewer.

        Parameters
        ----------
        is_whole : whether all columns are passed on.
        """
        names = () if self._values is None else self._values.column_names
        kept = {ours: theirs for ours, theirs in passed_on.items() if theirs in names}
        if self._held is not None and is_whole and len(kept) == len(passed_on):
            rows = self._held.rows
            left = consolidated(
                pa.table({**{ours: rows[theirs] for ours, theirs in kept.items()}, WEIGHT: rows[WEIGHT]}),
                self._sets.limits.summed_rows,
            )
            if left.num_rows < rows.num_rows:
                return self._sets.of_rows(left, frame.schema)
        return self.derived(frame, kept) if kept else self._sets.of(frame)

    def where(self, flag: str, names: Sequence[str]) -> RowSet:
        """Some columns of the shared rows with a flag."""
        if self._held is None:
            return RowSet(self._sets, self.frame.where(flag).select(*columns_of(names)), is_large=True)
        rows = self._held.rows
        found = HeldRows(rows.filter(rows[flag]), self._held.schema).select(names)
        return RowSet(self._sets, None, found, is_shared=True)

    def any_of(self, flags: Mapping[int, str]) -> list[int]:
        """Which flags some row of the shared rows has; a job if Spark has them."""
        if not flags:
            return []
        if self._held is not None:
            return [key for key, flag in flags.items() if pc.any(self._held.rows[flag]).as_py()]
        found = self.frame.agg(*(F.max(quoted(flag)) for flag in flags.values())).first()
        return [key for key, has in zip(flags, found or (), strict=False) if has]

    @property
    def is_empty(self) -> bool:
        """Whether there are certainly no rows."""
        return self.most_rows == 0

    @property
    def most_rows(self) -> float:
        """Number of rows, equal ones apart, of shared ones; infinite if unknown."""
        if self._held is not None:
            return float(self._held.rows.num_rows)
        return math.inf if self._known is None or self._known.num_rows else 0

    @property
    def may_retract(self) -> bool:
        """Whether some weight may be negative."""
        known = self._values
        return known is None or (known.num_rows > 0 and pc.min(known[WEIGHT]).as_py() < 0)

    @property
    def known_weight(self) -> int | None:
        """Sum of the weights; ``None`` if that takes a job."""
        return None if self._held is None else _sum_of(self._held.rows, WEIGHT)

    @property
    def flow(self) -> tuple[int, int] | None:
        """Rows that are inserted and deleted, where the driver holds them."""
        forms = (self, self._shared, self._summed)
        held = next((form._held for form in forms if form is not None and form._held is not None), None)
        if held is None or WEIGHT not in held.rows.column_names:
            return None
        weights = held.rows[WEIGHT]
        inserted, deleted = (
            pc.sum(pc.if_else(of_sign(weights, 0), weights, 0)).as_py() or 0 for of_sign in (pc.greater, pc.less)
        )
        return inserted, -deleted

    def total(self, column: str) -> int:
        """Sum of a column of whole numbers; a job if Spark has the rows."""
        if self._held is not None:
            return _sum_of(self._held.rows, column)
        found = self.frame.agg(F.sum(quoted(column))).first()
        return (found[0] or 0) if found else 0

    def values_at(self, column: str, positions: Sequence[int]) -> pa.ChunkedArray | None:
        """Values of a column of the rows at some positions; ``None`` if none is known.

        Parameters
        ----------
        positions : ascending, from 1; those beyond the last row are left out.
        """
        there = [position - 1 for position in positions if position <= self.most_rows]
        return self._held.rows[column].take(there) if self._held is not None and there else None

    def lookup_keys(self, on: Sequence[tuple[str, str]], *, null_safe: bool | Sequence[bool] = False) -> LookupKeys | None:
        """The keys of a lookup by these rows, where they are known.

        Parameters
        ----------
        on : pairs of a state column and the column of these rows that it equals, as the state is sorted.
        null_safe : whether NULL equals NULL, for all pairs or for each.
        """
        values = self._values
        if values is None or not on or on[0][1] not in values.column_names:
            return None
        (ours, theirs), safe = on[0], [null_safe] * len(on) if isinstance(null_safe, bool) else list(null_safe)
        found = LookupKeys.of(ours, values[theirs], null_safe=safe[0])
        if found is None:
            return None
        matching_nulls = [name for (name, _), nulls_match in zip(on, safe, strict=True) if nulls_match]
        return replace(found, key_rows=KeyRows.of(values, on, matching_nulls))

    @property
    def hint(self) -> str | None:
        """Join hint for lookups; Spark chooses for rows that are too many to be sent."""
        return None if self._is_large else self._sets.lookup_hint

    def broadcastable(self, derived: DataFrame) -> DataFrame:
        """A frame made of these rows, as the build side of a lookup."""
        return derived if self._is_large else self._sets.hinted(derived)

    @property
    def _values(self) -> pa.Table | None:
        """Known values of some columns at least."""
        return self._known if self._held is None else self._held.rows

    @property
    def _schema(self) -> StructType:
        return self.frame.schema if self._held is None else self._held.schema

    def _computed(self, *, summed: bool) -> RowSet:
        sets = self._sets
        if not sets.shares_by_jobs or not all(is_plain(f.dataType) for f in self._schema.fields):
            frame = sum_equal_rows(self.frame) if summed else self.frame
            return sets.of(sets.checkpointed(frame))
        if summed and not sums_as_spark(self._schema):
            return sets.of(sum_equal_rows(self.frame))._on_driver(summed=False)
        return self._on_driver(summed=summed)

    def _on_driver(self, *, summed: bool) -> RowSet:
        """Rows on the driver, if it may hold them."""
        limits, frame, held = self._sets.limits, self._frame, self._held
        most = limits.held_bytes
        rows = None if held is None else held.rows
        schema = self._schema
        if rows is None:
            whole = nullable_within(self.frame)
            schema = whole.schema
            if limits.is_final:
                # Computed once, be it for the driver or not: some rows of this epoch are known to be many.
                whole = frame = self._sets.checkpointed(whole, eager=True)
                most_rows = rows_within(whole, most)
                rows = whole.toArrow() if whole.limit(most_rows + 1).count() <= most_rows else None
            else:
                rows = collected(whole, most)
        if rows is not None and rows.nbytes <= most:
            return self._sets.of_rows(consolidated(rows, limits.summed_rows, must_sum=summed), schema)
        if not limits.is_final:
            raise DriverLimitExceeded(most + 1 if rows is None else rows.nbytes, most)
        frame = self.frame if frame is None else frame
        return RowSet(self._sets, self._sets.checkpointed(sum_equal_rows(frame)) if summed else frame, is_large=True)


def _sum_of(rows: pa.Table, column: str) -> int:
    return pc.sum(rows[column]).as_py() or 0
