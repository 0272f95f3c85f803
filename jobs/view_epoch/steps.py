"""Typed steps of one view's epoch, each with its writer, mode, sizes and reason.

A plan is made by :mod:`.jobs.view_epoch.plan` before the epoch runs. The executor walks its steps; ``EXPLAIN``, the report and
Dagster print them. Facts of later (rows of a change set, bytes of the published table) settle a step, by the
limits that it carries. Where more is found than was planned for, an :class:`Escalation` stands before steps that replace the
rest.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar

from relstate_dagster.jobs.engine.workloads import Workload
from relstate_dagster.jobs.plan.new_state import NO_NEW_STATE, NewState, Recompute
from relstate_dagster.jobs.targets.protocol import TargetFound
from relstate_dagster.jobs.view_epoch.findings import ChangeFound, StateFound
from relstate_dagster.state_lib.collected import DriverLimits
from relstate_dagster.state_lib.row_width import RowWidth, memory_bytes
from relstate_dagster.state_lib.units import bytes_shown


class Writer(enum.Enum):
    """Engine that writes and commits.

    ``DRIVER``: by delta-rs, without a Spark job. ``SPARK``: on the executors, by Spark's Delta.
    """

    DRIVER = "the driver"
    SPARK = "Spark"


class WriteMode(enum.Enum):
    """Mode of applying a change set to a published table.

    What only inserts is appended, and nothing of the table is read for it.

    ``REPLACE`` is for few keys in a large table: rows of these keys are deleted and others appended, in one commit. ``MERGE``
    joins the table with the change set. ``NOTHING`` is applied if no row of the view has changed.
    """

    APPEND = "append"
    REPLACE = "replace by key"
    MERGE = "merge"
    OVERWRITE = "replace all rows"
    NOTHING = "no row has changed"


_NO_WIDTH: Final = RowWidth(1, 1)


@dataclass(frozen=True, slots=True)
class Read:
    """Read the changes of a relation, or all of its rows.

    Parameters
    ----------
    mode : how it is read, in words.
    bytes : of the files that are read.
    rows : inserted and deleted, where that is known.
    row_count : rows that are read; an estimate where the log does not say.
    width : of the columns that the view reads.
    """

    relation: str
    mode: str
    bytes: int
    rows: tuple[int, int] | None = None
    row_count: int = 0
    width: RowWidth = _NO_WIDTH

    @property
    def is_nothing(self) -> bool:
        """Whether nothing changed in it."""
        return not self.bytes and self.rows == (0, 0)

    def line(self) -> str:
        """One line for people."""
        rows = "" if self.rows is None else f", +{self.rows[0]:,} −{self.rows[1]:,} rows"
        return f"read {self.relation}: {self.mode}" + (f", {bytes_shown(self.bytes)}{rows}" if self.bytes or self.rows else "")


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute the change sets of the view and of its state.

    Parameters
    ----------
    engine : what the session is set up for.
    holds : change sets with several readers are computed one by one and held by the driver. That costs a job for each. It
        is worth it: plans stay small, lookups know their keys, and an empty change set is not looked up at all.
    keeps_bytes : whether Spark keeps rows with several readers as bytes, and not as objects.
    lookup_hint : how change sets are joined with state; as of :class:`.jobs.operators.row_set.RowSets`.
    shuffle_tasks : of the epoch's shuffles; ``None``: as Spark is configured.
    state_bytes, in_place_bytes : of the files that changes are looked up in; ``None`` where nothing is.
    limits : of the rows that the driver holds.
    reason : why this engine.
    new_state : nodes of the plan whose state is filled, from all rows of what they read.
    recomputes : whether all rows of a built view are computed, and what becomes of the state; ``None`` where changes are.
    """

    engine: Workload
    holds: bool
    lookup_hint: str | None
    shuffle_tasks: int | None
    state_bytes: int | None
    in_place_bytes: int | None
    limits: DriverLimits
    reason: str
    new_state: NewState = NO_NEW_STATE
    recomputes: Recompute | None = None
    keeps_bytes: bool = False

    @property
    def is_of_all_rows(self) -> bool:
        """Whether all rows of the view are computed."""
        return self.new_state.is_all or self.recomputes is not None

    def lines(self) -> tuple[str, ...]:
        """Lines for people."""
        held = "held by the driver" if self.holds else "computed by Spark"
        held += ", kept as bytes" if self.keeps_bytes and not self.holds else ""
        code = {
            Workload.SMALL: "expressions interpreted",
            Workload.LARGE: "code generated",
            Workload.FULL: "code generated, plans adapted",
        }[self.engine]
        tasks = "" if self.shuffle_tasks is None else f", {self.shuffle_tasks} task{'s' * (self.shuffle_tasks > 1)} a shuffle"
        computed = [f"compute: change sets {held}, {code}{tasks} ({self.reason})"]
        if self.recomputes is not None:
            computed = [f"recompute: all rows less those of the view, {self.recomputes.value}, {code} ({self.reason})"]
        elif self.new_state.is_some:
            nodes = ", ".join(map(str, sorted(self.new_state.ids)))
            computed.append(f"fill: the state of node{'s' * (len(self.new_state.ids) > 1)} {nodes} from all rows")
        if self.state_bytes is None or self.in_place_bytes is None:
            return tuple(computed)
        how = {None: "as Spark chooses", "broadcast": "broadcast", "shuffle_hash": "hashed"}[self.lookup_hint]
        places = f"{bytes_shown(self.state_bytes)} of state, {bytes_shown(self.in_place_bytes)} of sources in place"
        return *computed, f"look up: in {places}, keys {how}"


@dataclass(frozen=True, slots=True)
class Commit:
    """Append state and change log in one commit.

    Parameters
    ----------
    writer : ``None``: the driver up to ``most_bytes``, Spark above.
    most_bytes : in memory, that the driver writes where it is not known before how many rows there are.
    tasks : that write, where Spark does.
    spreads : the rows of one table and vnode are divided among the tasks.
    is_done : an earlier try has committed.
    is_nothing : it turned out that nothing changed.
    """

    writer: Writer | None
    most_bytes: int
    tasks: int
    spreads: bool
    is_done: bool = False
    is_nothing: bool = False

    def line(self) -> str:
        """One line for people."""
        if self.is_done or self.is_nothing:
            return f"commit state: {'done by an earlier try' if self.is_done else 'nothing has changed'}"
        return f"commit state: by {_by(self.writer, bytes_shown(self.most_bytes))}"


@dataclass(frozen=True, slots=True)
class Publish:
    """Apply the view's change set to its published table.

    Parameters
    ----------
    writer : ``None``: the driver up to ``most_rows`` rows, Spark above.
    mode : how rows are applied; a merge becomes an append where no row turns out to go.
    only_inserts : nothing leaves the published table in this epoch.
    table_bytes : of the published table; ``None`` until it was looked at, since there may be nothing to publish.
    table_rows : of it; ``None`` as well where its log does not say.
    tasks : of a shuffle of the published table, where Spark merges.
    most_tasks, task_bytes : that ``tasks`` is worked out by.
    most_rows : that the driver writes where Spark has computed them.
    most_table_bytes : largest table whose rows the driver replaces.
    most_key_bytes : of keys that are named to Delta one by one.
    limits : of the rows that the driver holds.
    engine, shuffle_tasks : of the session that reads the change set back, and rewrites state afterwards.
    is_settled : this is how it was done.
    """

    writer: Writer | None
    mode: WriteMode
    only_inserts: bool
    table_bytes: int | None
    tasks: int
    most_tasks: int
    task_bytes: int
    most_rows: int
    most_table_bytes: int
    most_key_bytes: int
    limits: DriverLimits
    engine: Workload
    shuffle_tasks: int | None
    is_settled: bool = False
    table_rows: int | None = None

    def for_target(self, found: TargetFound) -> Publish:
        """Settle by the published table: rows of a large one are replaced by Spark."""
        only_inserts = self.only_inserts or found.is_empty or found.replaces
        mode = WriteMode.OVERWRITE if found.replaces else WriteMode.APPEND if only_inserts else WriteMode.MERGE
        by_spark = found.replaces or not found.driver_writes or (not only_inserts and found.bytes > self.most_table_bytes)
        writer = Writer.SPARK if by_spark else self.writer
        if self.mode is WriteMode.OVERWRITE and not found.replaces and found.driver_writes:
            writer = None  # the table that was to be replaced is made again, and empty
        tasks = min(self.most_tasks, 1 + memory_bytes(found.bytes) // self.task_bytes)
        settled = replace(self, writer=writer, mode=mode, only_inserts=only_inserts, tasks=tasks)
        return replace(settled, table_bytes=found.bytes, table_rows=found.rows)

    def may_replace_all(self, rows: int) -> bool:
        """Whether this many changed rows can cover the whole published table."""
        return self.mode is WriteMode.MERGE and bool(self.table_rows) and rows >= (self.table_rows or 0)

    def is_by_driver(self, rows: int) -> bool:
        """Whether the driver writes a change set of this many rows."""
        return self.writer is Writer.DRIVER or (self.writer is None and rows <= self.most_rows)

    def replaces_all(self, found: ChangeFound) -> bool:
        """Whether no row of the published table stays."""
        return self.may_replace_all(found.rows) and found.gone_rows == self.table_rows

    def for_changes(self, found: ChangeFound) -> Publish:
        """Settle by the change set.

        It is appended if no row goes, and by the driver if it has the rows.
        """
        mode = self.mode
        if mode is WriteMode.MERGE and found.goes is False:
            mode = WriteMode.APPEND
        writer = Writer.DRIVER if self.is_by_driver(found.rows) else Writer.SPARK
        if found.is_held and mode is WriteMode.APPEND:
            writer = Writer.DRIVER
        elif writer is Writer.DRIVER and not found.is_held:
            writer = Writer.SPARK
        if writer is Writer.SPARK and mode is WriteMode.MERGE:
            if self.replaces_all(found):
                mode = WriteMode.OVERWRITE
            elif found.key_bytes is not None and found.key_bytes <= self.most_key_bytes:
                mode = WriteMode.REPLACE
        return replace(self, writer=writer, mode=mode, is_settled=True)

    def line(self) -> str:
        """One line for people."""
        if self.mode is WriteMode.NOTHING:
            return f"publish: {self.mode.value}"
        target = f" into {bytes_shown(self.table_bytes)}" if self.table_bytes else ""
        later = "; append where no row goes" if self.mode is WriteMode.MERGE and not self.is_settled else ""
        return f"publish: {self.mode.value}{target}, by {_by(self.writer, f'{self.most_rows:,} rows')}{later}"


def _by(writer: Writer | None, most: str) -> str:
    return writer.value if writer else f"the driver up to {most}, else Spark"


@dataclass(frozen=True, slots=True)
class Maintain:
    """Rewrite state tables that have grown, without rows that are dead.

    Parameters
    ----------
    growth, spare_rows : a table is due once it has ``growth`` times the rows of its last rewrite, and ``spare_rows`` more.
    most_bytes : that the driver rewrites.
    rewrites : the tables, by their ids.
    empties : tables whose rows are deleted, because the view is recomputed.
    drops_expired, drops_closed : whether expired rows are left out, and those of closed groups.
    """

    growth: int
    spare_rows: int
    most_bytes: int
    rewrites: tuple[int, ...] = ()
    empties: tuple[int, ...] = ()
    drops_expired: bool = False
    drops_closed: bool = False

    def for_state(self, found: StateFound) -> Maintain:
        """Settle by the state after the epoch: the driver rewrites small tables that are due."""
        due = {
            table_id
            for table_id, rows in found.rows.items()
            if table_id not in self.empties
            and found.bytes[table_id] <= self.most_bytes
            and rows > self.growth * found.merged_rows.get(table_id, 0) + self.spare_rows
        }
        # What is too large for the driver is for `relstate compact`, which has Spark write.
        expires = bool(found.expired) and sum(found.bytes[n] for n in found.expired) <= self.most_bytes
        # When state has grown so much that it is rewritten anyway; all of it, since a group is in all tables or in none.
        closes = not found.closed.isdisjoint(due) and sum(found.bytes[n] for n in due | found.closed) <= self.most_bytes
        rewrites = due | (found.expired if expires else frozenset()) | (found.closed if closes else frozenset())
        return replace(self, rewrites=tuple(sorted(rewrites)), drops_expired=expires, drops_closed=closes)

    def lines(self) -> tuple[str, ...]:
        """Lines for people; none where nothing is due."""
        emptied = (f"maintain: delete the rows of state tables {', '.join(map(str, self.empties))}",) if self.empties else ()
        if not self.rewrites:
            return emptied
        dead = [name for name, dropped in (("expired", self.drops_expired), ("closed", self.drops_closed)) if dropped]
        without = f", without {' and '.join(dead)} rows" if dead else ""
        tables = ", ".join(map(str, self.rewrites))
        return (
            *emptied,
            f"maintain: rewrite state table{'s' * (len(self.rewrites) > 1)} {tables}, by the driver{without}",
        )


@dataclass(frozen=True, slots=True)
class Escalation:
    """More rows than a step was planned for.

    The steps after it replace the rest of the plan.

    Parameters
    ----------
    step : that found it.
    found : bytes in memory, at least.
    limit : bytes that the step was planned for.
    """

    step: str
    found: int
    limit: int

    def line(self) -> str:
        """One line for people."""
        return (
            f"escalate: {self.step} met more than {bytes_shown(self.limit)} of rows (at least {bytes_shown(self.found)}), "
            "the rest is done by Spark"
        )


_Kind = TypeVar("_Kind", Compute, Commit, Publish, Maintain)
Step: TypeAlias = Read | Compute | Commit | Publish | Maintain | Escalation


@dataclass(frozen=True, slots=True)
class ViewEpochPlan:
    """The plan of one view's epoch.

    Parameters
    ----------
    steps : in the order in which they run. After an :class:`Escalation` the remaining steps stand once more.
    """

    steps: tuple[Step, ...]

    @property
    def reads(self) -> tuple[Read, ...]:
        """All read steps."""
        return tuple(step for step in self.steps if isinstance(step, Read))

    @property
    def compute(self) -> Compute:
        """The last compute step."""
        return self._last(Compute)

    @property
    def commit(self) -> Commit:
        """The last commit step."""
        return self._last(Commit)

    @property
    def publish(self) -> Publish:
        """The last publish step."""
        return self._last(Publish)

    @property
    def maintain(self) -> Maintain:
        """The last maintain step."""
        return self._last(Maintain)

    @property
    def changed_bytes(self) -> int:
        """Bytes of all changes, as files."""
        return sum(read.bytes for read in self.reads)

    @property
    def keeps_state(self) -> bool:
        """Whether the view has state afterwards, for the next changes."""
        return not any(isinstance(step, Compute) and step.recomputes is Recompute.WITHOUT_STATE for step in self.steps)

    @property
    def why_recomputed(self) -> str | None:
        """Reason for computing all rows of a built view.

        ``None`` where its changes are followed, or an earlier try did it.
        """
        found = next((step for step in self.steps if isinstance(step, Compute)), None)
        return None if found is None or found.recomputes is None else f"recomputed: {found.reason}"

    def settled(self, step: Commit | Publish | Maintain) -> ViewEpochPlan:
        """The same plan with a step as it turned out."""
        place = max(n for n, known in enumerate(self.steps) if type(known) is type(step))
        return ViewEpochPlan((*self.steps[:place], step, *self.steps[place + 1 :]))

    def without_changes(self, *, is_committed: bool) -> ViewEpochPlan:
        """The same plan for a view without changed rows.

        Its state may have changed.
        """
        plan = self.settled(replace(self.publish, mode=WriteMode.NOTHING, is_settled=True))
        return plan if is_committed else plan.settled(replace(plan.commit, is_nothing=True))

    def escalated(self, escalation: Escalation, *remaining: Step) -> ViewEpochPlan:
        """The same plan with its remaining steps replaced."""
        first = max(n for n, step in enumerate(self.steps) if type(step) is type(remaining[0]))
        return ViewEpochPlan((*self.steps[:first], self.steps[first], escalation, *remaining))

    def lines(self) -> tuple[str, ...]:
        """Lines for people, in the order of the steps."""
        found: list[str] = []
        for step in self.steps:
            found += step.lines() if isinstance(step, Compute | Maintain) else [step.line()]
        return tuple(found)

    def _last(self, kind: type[_Kind]) -> _Kind:
        return next(step for step in reversed(self.steps) if isinstance(step, kind))
