"""Plans a view's epoch, as a pure function of its stored plan, sizes and limits.

Two functions read the limits of this process: :func:`plan_view_epoch`, unless it is given others, and :func:`run_limits`, for
work beside views' epochs. Nothing else reads :func:`.state_lib.sizing.sizing`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.engine.workloads import Workload
from relstate_dagster.jobs.plan.new_state import NO_NEW_STATE, NewState, Recompute
from relstate_dagster.jobs.targets.protocol import TargetFound
from relstate_dagster.jobs.view_epoch.findings import StateFound
from relstate_dagster.jobs.view_epoch.steps import (
    Commit,
    Compute,
    Escalation,
    Maintain,
    Publish,
    Read,
    ViewEpochPlan,
    WriteMode,
    Writer,
)
from relstate_dagster.state_lib.collected import DriverLimits
from relstate_dagster.state_lib.row_width import RowWidth
from relstate_dagster.state_lib.size_settings import Sizing
from relstate_dagster.state_lib.sizing import sizing

_NO_STATE: Final = StateFound({}, {})


@dataclass(frozen=True, slots=True)
class AllRows:
    """Sizes of all that a view reads and has.

    They are known where its epoch may compute all of it.

    Parameters
    ----------
    read_all : reads all rows of each relation; asked for only where it matters, since it lists the files of sources.
    count : counts the view's rows, where it matters, since that opens its published table; ``width`` is theirs.
    last_in, last_out : rows that came in, and changed rows of the view, in the last epoch that changed it.
    keeps_input : whether state has input rows, which some groups or partitions are computed from again.
    unfilled : nodes without state, all that could have some, where the last epoch kept none. They can follow no change.
    state_tables : those of its nodes that have rows.
    slower : why past epochs say that to follow the change takes longer.
    """

    read_all: Callable[[], tuple[Read, ...]]
    count: Callable[[], int]
    width: RowWidth
    last_in: int = 0
    last_out: int = 0
    keeps_input: bool = False
    unfilled: frozenset[int] = frozenset()
    state_tables: tuple[int, ...] = ()
    slower: str | None = None

    @property
    def reads(self) -> tuple[Read, ...]:
        """Read steps of all rows of each relation."""
        return self.read_all()

    @property
    def rows(self) -> int:
        """Rows of the view."""
        return self.count()

    @property
    def values(self) -> int:
        """Values of all that the view reads: rows times columns."""
        return sum(read.row_count * read.width.columns for read in self.reads)

    @property
    def row_count(self) -> int:
        """Rows of all that the view reads."""
        return sum(read.row_count for read in self.reads)

    def expected_out(self, changed_rows: int) -> int:
        """Changed rows of the view, if as many change as in its last epoch.

        0 without one since its build.
        """
        return self.last_out * changed_rows // self.last_in if self.last_in else 0

    def share_of_changed(self, changed_rows: int) -> float:
        """Expected share of the view's rows that change, if some rows come in.

        Without an epoch since the build, each of these is taken to change one row, at random.
        """
        rows = max(1, self.rows)
        # An updated row counts twice.
        return self.expected_out(changed_rows) / (2 * rows) if self.last_in else 1 - math.exp(-changed_rows / rows)

    @property
    def memory_bytes(self) -> int:
        """Bytes that these take in memory, about."""
        return sum(read.row_count * read.width.bytes for read in self.reads)


@dataclass(frozen=True, slots=True)
class ViewSizes:
    """Sizes of a view's epoch as its logs have them, before it is computed.

    Parameters
    ----------
    is_backfill : the view has no earlier epoch.
    reads : what is read of each relation, views included.
    state_bytes, in_place_bytes : what changes are looked up in: the view's own state, and sources where they are.
    looked_up_rows : rows of these.
    recomputed_rows : rows of state that windows, limits and groups are computed from again.
    only_inserts : nothing leaves the published table in this epoch.
    replaces : the rows of an earlier generation are replaced.
    is_committed : an earlier try has committed the change set, which is only to be published.
    is_slice : it computes one slice of many rows, the last one included.
    driver_writes_state, driver_writes_view : whether their columns have names and types that the driver can write.
    published : the published table; ``None`` if it was not looked at.
    state : the view's state tables.
    unfilled : nodes of the plan whose state is empty and is filled in this epoch, while the others go on.
    all_rows : ``None`` where the epoch has to follow changes.
    changed_date : that the date is another one than in the view's last epoch, where its rows depend on the date.
    dropped_state : tables with state that an earlier try has not kept: it has computed all rows.
    """

    is_backfill: bool
    reads: tuple[Read, ...]
    state_bytes: int = 0
    in_place_bytes: int = 0
    looked_up_rows: int = 0
    recomputed_rows: int = 0
    only_inserts: bool = False
    replaces: bool = False
    is_committed: bool = False
    is_slice: bool = False
    driver_writes_state: bool = True
    driver_writes_view: bool = True
    published: TargetFound | None = None
    state: StateFound = _NO_STATE
    unfilled: frozenset[int] = frozenset()
    all_rows: AllRows | None = None
    changed_date: str | None = None
    dropped_state: tuple[int, ...] = ()

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing that the view reads has changed, for certain."""
        return not self.is_backfill and all(read.is_nothing for read in self.reads)

    @property
    def changed_rows(self) -> int:
        """Rows of all changes."""
        return sum(read.row_count for read in self.reads)

    @property
    def changed_bytes(self) -> int:
        """Bytes of all changes, as files."""
        return sum(read.bytes for read in self.reads)

    @property
    def changed_values(self) -> int:
        """Values of all changes: rows times columns."""
        return sum(read.row_count * read.width.columns for read in self.reads)

    @property
    def changed_memory_bytes(self) -> int:
        """Bytes that all changes take in memory, about."""
        return sum(read.row_count * read.width.bytes for read in self.reads)


def plan_view_epoch(view: ViewEntry, sizes: ViewSizes, *, most_tasks: int, limits: Sizing | None = None) -> ViewEpochPlan:
    """Plan the epoch of a view.

    Parameters
    ----------
    most_tasks : of a shuffle, as Spark is configured.
    limits : those of this process by default.
    """
    limits = limits or sizing()
    # A backfill may write far more than it reads: to state, and to the view. What turns out to be too much is computed again.
    most_bytes = limits.driver_backfill_bytes if sizes.is_backfill else limits.driver_change_bytes
    is_small = sizes.changed_memory_bytes <= most_bytes
    maintain = _maintenance(limits).for_state(sizes.state)
    if sizes.is_committed:
        done = Commit(None, limits.driver_commit_bytes, most_tasks, spreads=False, is_done=True)
        by_code = not _is_interpreted(0, sizes.looked_up_rows, 0, limits)
        engine, tasks = (Workload.LARGE, most_tasks) if by_code else (Workload.SMALL, 1)
        maintain = replace(maintain, empties=sizes.dropped_state)
        return ViewEpochPlan((done, _publish(sizes, is_small, engine, tasks, most_tasks, limits), maintain))
    all_rows, recompute = sizes.all_rows, _recompute(sizes, limits)
    if all_rows is not None and recompute is not None:
        what, reason = recompute
        compute = _computes_all(all_rows, what, reason, most_tasks, limits)
        # All rows may come and go.
        is_small = 2 * all_rows.rows * all_rows.width.bytes <= limits.driver_held_bytes
        commit = _commit(sizes, compute, is_small, most_tasks, limits)
        publish = _publish(sizes, is_small, compute.engine, compute.shuffle_tasks, most_tasks, limits)
        if what is Recompute.WITHOUT_STATE:
            maintain = replace(_maintenance(limits), empties=all_rows.state_tables).for_state(sizes.state)
        return ViewEpochPlan((*all_rows.reads, compute, commit, publish, maintain))
    compute = _compute(view, sizes, most_tasks, limits)
    publish = _publish(sizes, is_small, compute.engine, compute.shuffle_tasks, most_tasks, limits)
    return ViewEpochPlan((*sizes.reads, compute, _commit(sizes, compute, is_small, most_tasks, limits), publish, maintain))


def _compute(view: ViewEntry, sizes: ViewSizes, most_tasks: int, limits: Sizing) -> Compute:
    changed, values = sizes.changed_memory_bytes, sizes.changed_values
    looked_up_rows, recomputed_rows = (0, 0) if sizes.is_backfill else (sizes.looked_up_rows, sizes.recomputed_rows)
    if view.strategy == "full":
        engine, reason = Workload.FULL, "the query runs in full"
    elif _is_interpreted(values, looked_up_rows, recomputed_rows, limits):
        engine, reason = Workload.SMALL, f"{values:,} values, {looked_up_rows:,} rows to look them up in"
    else:
        engine = Workload.FULL if sizes.is_backfill or sizes.is_slice else Workload.LARGE
        if values > limits.interpreted_values:
            reason = f"{values:,} values"
        elif looked_up_rows > limits.interpreted_lookup_rows:
            reason = f"{looked_up_rows:,} rows to look them up in"
        else:
            reason = f"{recomputed_rows:,} rows to compute partitions and groups from"
    is_small = changed <= limits.driver_change_bytes
    return Compute(
        engine=engine,
        holds=changed <= (limits.driver_backfill_bytes if sizes.is_backfill else limits.driver_change_bytes),
        lookup_hint=None if not is_small else "broadcast" if engine is Workload.LARGE else "shuffle_hash",
        # No other state is shuffled than what is computed from again.
        shuffle_tasks=None if engine is Workload.FULL else _tasks_of(changed, most_tasks, limits, recomputed_rows),
        state_bytes=None if sizes.is_backfill else sizes.state_bytes,
        in_place_bytes=None if sizes.is_backfill else sizes.in_place_bytes,
        limits=_driver_limits(limits),
        reason=reason,
        new_state=NewState(is_all=True) if sizes.is_backfill else NewState(sizes.unfilled),
        keeps_bytes=changed > (limits.driver_backfill_bytes if sizes.is_backfill else limits.object_rows_bytes),
    )


def _recompute(sizes: ViewSizes, limits: Sizing) -> tuple[Recompute, str] | None:
    """Whether all rows are computed, and why; ``None`` where the change is followed."""
    all_rows = sizes.all_rows
    if all_rows is not None and sizes.changed_date is not None:
        return Recompute.WITHOUT_STATE, sizes.changed_date
    # A view without state needs none where nothing has changed.
    if all_rows is None or sizes.is_unchanged:
        return None
    reason = _why_recompute(sizes, all_rows, limits)
    if reason is not None:
        return Recompute.WITHOUT_STATE, reason
    if not all_rows.unfilled:
        return None
    if all_rows.state_tables:
        return Recompute.WITHOUT_STATE, "its state was not deleted yet"
    return Recompute.WITH_STATE, f"few values have changed again, {sizes.changed_values:,} of {all_rows.values:,}"


def _why_recompute(sizes: ViewSizes, all_rows: AllRows, limits: Sizing) -> str | None:
    """Why computing all rows is cheaper than to follow the change."""
    # To fill state takes as long as some epochs without it: it is filled for changes that are clearly small.
    fraction = 0.5 if all_rows.unfilled else 1.0
    least, share = limits.recompute_values * fraction, limits.recompute_share * fraction
    if sizes.changed_values >= least and sizes.changed_values >= share * all_rows.values:
        return f"{sizes.changed_values:,} of {all_rows.values:,} values have changed"
    expected = all_rows.expected_out(sizes.changed_rows)
    # An updated row counts twice.
    if expected * all_rows.width.columns >= least and expected >= 2 * share * all_rows.rows:
        return f"about {expected:,} rows come and go in the view, which has {all_rows.rows:,}"
    return all_rows.slower or _why_read_again(sizes, all_rows, least, share)


def _why_read_again(sizes: ViewSizes, all_rows: AllRows, least: float, share: float) -> str | None:
    """Why groups that change are better computed from all that the view reads.

    Their input rows are about as many. Not where these are much fewer: they may be what a join has left.
    """
    if not all_rows.keeps_input or (changed := all_rows.share_of_changed(sizes.changed_rows)) < share:
        return None
    kept = sizes.recomputed_rows if not all_rows.unfilled else all_rows.row_count
    again = round(min(1.0, changed) * kept)
    if again < least or all_rows.row_count > 2 * again:
        return None
    return f"about {again:,} of {all_rows.row_count:,} rows that it reads would be read again"


def _computes_all(all_rows: AllRows, what: Recompute, reason: str, most_tasks: int, limits: Sizing) -> Compute:
    is_interpreted = _is_interpreted(all_rows.values, 0, 0, limits)
    return Compute(
        engine=Workload.SMALL if is_interpreted else Workload.FULL,
        holds=all_rows.memory_bytes <= limits.driver_backfill_bytes,
        lookup_hint=None,
        shuffle_tasks=_tasks_of(all_rows.memory_bytes, most_tasks, limits) if is_interpreted else None,
        state_bytes=None,
        in_place_bytes=None,
        limits=_driver_limits(limits),
        reason=reason,
        new_state=NewState(all_rows.unfilled) if what is Recompute.WITH_STATE else NO_NEW_STATE,
        recomputes=what,
        keeps_bytes=all_rows.memory_bytes > limits.object_rows_bytes,
    )


def _commit(sizes: ViewSizes, compute: Compute, is_small: bool, most_tasks: int, limits: Sizing) -> Commit:
    # Much is read in a backfill, and may come to little: a Delta write by Spark takes seconds, be it of one row.
    writer = Writer.DRIVER if is_small else None if compute.is_of_all_rows else Writer.SPARK
    if not sizes.driver_writes_state:
        writer = Writer.SPARK
    tasks = most_tasks if compute.shuffle_tasks is None else compute.shuffle_tasks
    return Commit(writer, limits.driver_commit_bytes, tasks, spreads=not is_small)


def _publish(sizes: ViewSizes, is_small: bool, engine: Workload, tasks: int | None, most_tasks: int, limits: Sizing) -> Publish:
    by_spark = sizes.replaces or not sizes.driver_writes_view
    writer = Writer.SPARK if by_spark else Writer.DRIVER if is_small else None
    mode = WriteMode.OVERWRITE if sizes.replaces else WriteMode.APPEND if sizes.only_inserts else WriteMode.MERGE
    planned = Publish(
        writer,
        mode,
        sizes.only_inserts,
        table_bytes=None,
        tasks=1,
        most_tasks=most_tasks,
        task_bytes=limits.task_bytes,
        most_rows=limits.driver_commit_rows,
        most_table_bytes=limits.driver_publish_bytes,
        most_key_bytes=limits.replaced_key_bytes,
        limits=_driver_limits(limits),
        engine=engine,
        shuffle_tasks=tasks,
    )
    return planned if sizes.published is None else planned.for_target(sizes.published)


def plan_escalation(plan: ViewEpochPlan, found: int, *, most_tasks: int) -> ViewEpochPlan:
    """Plan the rest of an epoch whose change set met too many rows.

    Parameters
    ----------
    found : bytes of the rows, at least.
    """
    before = plan.compute
    is_backfill = before.is_of_all_rows
    again = Escalation("compute", found, before.limits.held_bytes)
    # Queries that run in full, and slices, go on with Spark's own settings.
    engine = Workload.FULL if is_backfill or before.engine is Workload.FULL else Workload.LARGE
    compute = replace(
        before,
        engine=engine,
        holds=not is_backfill,
        lookup_hint=None if is_backfill else "broadcast",
        shuffle_tasks=None if engine is Workload.FULL else most_tasks,
        limits=replace(before.limits, is_final=True),
        reason="more rows than planned for",
        keeps_bytes=True,
    )
    commit = replace(plan.commit, writer=_by_rows(plan.commit.writer), tasks=most_tasks, spreads=True)
    publish = replace(
        plan.publish, writer=_by_rows(plan.publish.writer), engine=compute.engine, shuffle_tasks=compute.shuffle_tasks
    )
    return plan.escalated(again, compute, commit, publish, plan.maintain)


def plan_large_commit(plan: ViewEpochPlan) -> ViewEpochPlan:
    """Plan the rest of an epoch whose results are too many for the driver."""
    limit = plan.compute.limits.collected_bytes
    publish = replace(plan.publish, writer=_by_rows(plan.publish.writer))
    commit = replace(plan.commit, writer=Writer.SPARK)
    return plan.escalated(Escalation("commit", limit + 1, limit), commit, publish, plan.maintain)


def _by_rows(writer: Writer | None) -> Writer | None:
    """The writer if the driver was planned for few rows, and there may be many."""
    return None if writer is Writer.DRIVER else writer


def _tasks_of(size: int, most_tasks: int, limits: Sizing, rows: int = 0) -> int:
    """The tasks of a shuffle of changes in memory and rows of state."""
    return min(most_tasks, 1 + max(size // limits.task_bytes, rows // limits.task_rows))


def _driver_limits(limits: Sizing) -> DriverLimits:
    """Limits of rows that the driver holds."""
    return DriverLimits(limits.driver_held_bytes, limits.driver_collected_bytes, limits.driver_summed_rows)


def _maintenance(limits: Sizing) -> Maintain:
    """The rule by which state tables are rewritten after an epoch."""
    return Maintain(limits.compaction_growth, limits.compaction_spare_rows, limits.driver_compaction_bytes)


def _is_interpreted(values: int, looked_up_rows: int, recomputed_rows: int, limits: Sizing) -> bool:
    """Whether to interpret expressions is faster than to generate and compile code for them.

    Parameters
    ----------
    values : that are computed with, rows times columns.
    looked_up_rows : rows that these are looked up in.
    recomputed_rows : rows of state that partitions and groups are computed from again.
    """
    is_looked_up = looked_up_rows <= limits.interpreted_lookup_rows and recomputed_rows <= limits.interpreted_recomputed_rows
    return values <= limits.interpreted_values and is_looked_up


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of the work beside views' epochs: of runs, compactions and comparisons.

    Parameters
    ----------
    compared_bytes : changes of a source, as files, whose keys the driver compares; files of a folder that Spark holds.
    keys : primary keys of a whole source that the driver checks.
    searched_rows : rows that the driver searches for new keys.
    checked_bytes : of a published table whose keys the driver checks.
    shared_bytes : changes of a source, as files, that are read once for several views.
    interpreted_values : values, rows times columns, up to which expressions are interpreted.
    maintain : the rule by which state tables are rewritten.
    driver : of the rows that the driver holds.
    """

    compared_bytes: int
    keys: int
    searched_rows: int
    checked_bytes: int
    shared_bytes: int
    interpreted_values: int
    maintain: Maintain
    driver: DriverLimits


def run_limits() -> RunLimits:
    """The limits of the work beside views' epochs, in this process."""
    limits = sizing()
    return RunLimits(
        limits.driver_change_bytes,
        limits.driver_keys,
        limits.searched_rows,
        limits.driver_checked_bytes,
        limits.shared_read_bytes,
        limits.interpreted_values,
        _maintenance(limits),
        _driver_limits(limits),
    )
