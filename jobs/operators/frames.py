"""Frames of one view's epoch: shared ones, and those that the driver holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from relstate_dagster.jobs.operators.z_sets import sum_equal_rows
from relstate_dagster.state_lib.collected import (
    DriverLimits,
    collected,
    consolidated,
    frame_of,
    nullable_within,
    rows_within,
    sums_as_spark,
)
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.key_rows import KeyRows
from relstate_dagster.state_lib.lake.commit import is_plain
from relstate_dagster.state_lib.lookup_keys import LookupKeys


@dataclass(slots=True)
class _Known:
    """Facts about a frame.

    Parameters
    ----------
    frame : the frame itself, kept so that its ``id`` stays its own.
    shared : the same rows, computed once; the frame itself if it is shared.
    summed : the same rows with equal ones summed, computed once.
    rows : its rows, where the driver holds them.
    derived_from : values of some of its columns, of a frame that is made row by row of rows that the driver holds.
    is_large : whether the driver could not hold its rows.
    """

    frame: DataFrame
    shared: DataFrame | None = None
    summed: DataFrame | None = None
    rows: pa.Table | None = None
    derived_from: pa.Table | None = None
    is_large: bool = False


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


@dataclass(slots=True)
class Frames:
    """Shares the frames of an epoch.

    Parameters
    ----------
    spark : the session that they belong to.
    held : whether shared change sets are computed at once and held by the driver. That is a job for each, but plans stay
        small, lookups know their keys, and an empty change set ends there.
    lookup_hint : how change sets meet state. ``broadcast``: sent to every task, each reads the state where it lies.
        ``shuffle_hash``: hashed by the task that reads the state, which suits state that one task reads: a broadcast
        is a job of its own. None: change sets are too large for either, Spark chooses.
    single_partition : whether one task does what comes after a shuffle: little has changed.
    limits : of the rows that the driver holds.
    """

    spark: SparkSession
    held: bool = False
    lookup_hint: str | None = "broadcast"
    single_partition: bool = True
    limits: DriverLimits = field(default_factory=DriverLimits)
    _known: dict[int, _Known] = field(default_factory=dict)

    def _of(self, frame: DataFrame) -> _Known:
        return self._known.setdefault(id(frame), _Known(frame))

    def share(self, df: DataFrame, wanted_by: Sequence[str] = (), *, summed: bool = False) -> DataFrame:
        """The same rows, computed once however many consumers they have.

        A local checkpoint and not a cache: it cuts the logical plan, which would otherwise double at every use. Where frames
        are ``held``, the rows are computed now, and what cancels is gone.

        Parameters
        ----------
        wanted_by : the columns by which others are looked up. A frame that was :meth:`derived` is returned unchanged if the
            values of these are known.
        summed : whether a consumer needs equal rows summed and zeros dropped. Rows that the driver holds it sums itself,
            which saves Spark a shuffle.
        """
        known = self._of(df)
        if known.shared is not None:  # what is shared already is what is summed, if that is asked for later
            df, known = known.shared, self._of(known.shared)
        done = known.summed if summed else known.shared
        if done is not None:
            return done
        if known.derived_from is not None and not summed and set(wanted_by) <= set(known.derived_from.column_names):
            return df
        shared = self._on_driver(df, summed) if self._may_hold(df) else _checkpointed(df, summed)
        for frame in (df, shared):
            entry = self._of(frame)
            entry.shared = entry.shared or shared
            if summed:
                entry.summed = entry.summed or shared
        return shared

    def _may_hold(self, df: DataFrame) -> bool:
        return self.held and all(is_plain(f.dataType) for f in df.schema.fields)

    def _on_driver(self, df: DataFrame, summed: bool) -> DataFrame:
        """Rows on the driver, if it may hold them."""
        if summed and not sums_as_spark(df.schema):
            df, summed = sum_equal_rows(df), False
        rows, whole, most = self._of(df).rows, df, self.limits.held_bytes
        if rows is None:
            whole = nullable_within(df)
            if self.limits.is_final:
                # Computed once, be it for the driver or not: some frame of this epoch is known to be large.
                whole = df = whole.localCheckpoint()
                most_rows = rows_within(whole, most)
                rows = whole.toArrow() if whole.limit(most_rows + 1).count() <= most_rows else None
            else:
                rows = collected(whole, most)
        if rows is not None and rows.nbytes <= most:
            return self.of_rows(self.consolidated(rows, must_sum=summed), whole.schema)
        if not self.limits.is_final:
            raise DriverLimitExceeded(most + 1 if rows is None else rows.nbytes, most)
        shared = sum_equal_rows(df).localCheckpoint(eager=False) if summed else df
        self._of(shared).is_large = True
        return shared

    def consolidated(self, rows: pa.Table, *, must_sum: bool = False) -> pa.Table:
        """Weighted rows of the driver with equal ones summed, if cheap or required."""
        return consolidated(rows, self.limits.summed_rows, must_sum=must_sum)

    def of_rows(self, rows: pa.Table, schema: StructType) -> DataFrame:
        """A shared frame of rows that the driver has."""
        frame = frame_of(self.spark, rows, schema)
        self._known[id(frame)] = _Known(frame, shared=frame, rows=rows)
        return frame

    def derived(self, df: DataFrame, values: pa.Table) -> DataFrame:
        """Note that a frame is made row by row of held rows.

        Computing it once saves nothing.

        Parameters
        ----------
        values : at least the values that some of its columns have, under their names. The frame has rows if this has any.
        """
        self._of(df).derived_from = values
        return df

    def values_of(self, df: DataFrame) -> pa.Table | None:
        """Known values of a derived frame, or held rows of a shared one."""
        known = self._of(df)
        return known.rows if known.derived_from is None else known.derived_from

    def rows_of(self, df: DataFrame) -> pa.Table | None:
        """The rows of a shared frame, where the driver holds them."""
        return self._of(df).rows

    def flow_of(self, df: DataFrame) -> tuple[int, int] | None:
        """Rows that a change set inserts and deletes, if the driver holds them."""
        known = self._known.get(id(df))
        if known is None:
            return None
        forms = [known, *(self._of(form) for form in (known.shared, known.summed) if form is not None)]
        rows = next((form.rows for form in forms if form.rows is not None), None)
        if rows is None or WEIGHT not in rows.column_names:
            return None
        weights = rows[WEIGHT]
        inserted, deleted = (
            pc.sum(pc.if_else(of_sign(weights, 0), weights, 0)).as_py() or 0 for of_sign in (pc.greater, pc.less)
        )
        return inserted, -deleted

    def is_empty(self, df: DataFrame) -> bool:
        """Whether a shared frame is known to have no rows."""
        rows = self.rows_of(df)
        return rows is not None and rows.num_rows == 0

    def lookup_keys(
        self, df: DataFrame, on: Sequence[tuple[str, str]], *, null_safe: bool | Sequence[bool] = False
    ) -> LookupKeys | None:
        """The keys of a lookup by a shared frame, where they are known.

        Parameters
        ----------
        df : a frame that was shared, or derived from one.
        on : pairs of a state column and the column of the frame it equals, as the state is sorted.
        null_safe : whether NULL equals NULL, for all pairs or for each.
        """
        values = self.values_of(df)
        if values is None or not on or on[0][1] not in values.column_names:
            return None
        (ours, theirs), safe = on[0], [null_safe] * len(on) if isinstance(null_safe, bool) else list(null_safe)
        found = LookupKeys.of(ours, values[theirs], null_safe=safe[0])
        if found is None:
            return None
        matching_nulls = [name for (name, _), nulls_match in zip(on, safe, strict=True) if nulls_match]
        return replace(found, key_rows=KeyRows.of(values, on, matching_nulls))

    def hint(self, df: DataFrame) -> str | None:
        """Join hint of a shared frame for lookups.

        Spark chooses for a frame that is too large to be sent.
        """
        return None if self._of(df).is_large else self.lookup_hint

    def broadcastable(self, df: DataFrame, derived: DataFrame) -> DataFrame:
        """A frame derived row by row, as the build side of a lookup."""
        hint = self.hint(df)
        return derived.hint(hint) if hint else derived


def _checkpointed(df: DataFrame, summed: bool) -> DataFrame:
    return (sum_equal_rows(df) if summed else df).localCheckpoint(eager=False)
