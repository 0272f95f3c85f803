"""The stages of one view's epoch, planned from sizes before anything is read or written.

The runner goes by these stages, and explain and the epoch's report print them. What is not known before (how many rows a
change comes to) is decided by the sizes named here once it is.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.epoch.sessions import Workload
from relstate_dagster.state_lib.row_width import RowWidth
from relstate_dagster.state_lib.sizing import sizing
from relstate_dagster.state_lib.units import bytes_shown


class Writer(enum.Enum):
    """Who writes and commits: ``DRIVER`` by delta-rs, without a Spark job; ``SPARK`` on the executors, by Spark's Delta."""

    DRIVER = "the driver"
    SPARK = "Spark"


class WriteMode(enum.Enum):
    """How a change set is applied: what only inserts is appended, and nothing of the table is read for it.

    ``REPLACE`` is for few keys in a large table: rows of these keys are deleted and others appended, in one commit. ``MERGE``
    joins the table with the change set.
    """

    APPEND = "append"
    REPLACE = "replace by key"
    MERGE = "merge"
    OVERWRITE = "replace all rows"


_NO_WIDTH: Final = RowWidth(1, 1)


@dataclass(frozen=True, slots=True)
class Read:
    """What is read of a relation.

    Parameters
    ----------
    way : how, in words.
    bytes : of the files that are read.
    rows : inserted and deleted, where that is known.
    row_count : rows that are read; an estimate where the log does not say.
    width : of the columns that the view reads.
    """

    relation: str
    way: str
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
        return f"read {self.relation}: {self.way}" + (f", {bytes_shown(self.bytes)}{rows}" if self.bytes or self.rows else "")


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is known of a view's epoch before it is computed.

    Parameters
    ----------
    is_backfill : the view has no earlier epoch.
    reads : what is read of each relation, views included.
    state_bytes, in_place_bytes : what changes are looked up in: the view's own state, and sources where they are.
    looked_up_rows : rows of these.
    only_inserts : nothing leaves the published table in this epoch.
    replaces : the rows of an earlier generation are replaced.
    is_committed : an earlier try has committed the change set, which is only to be published.
    is_slice : it computes one slice of many rows, the last one included.
    """

    is_backfill: bool
    reads: tuple[Read, ...]
    state_bytes: int = 0
    in_place_bytes: int = 0
    looked_up_rows: int = 0
    only_inserts: bool = False
    replaces: bool = False
    is_committed: bool = False
    is_slice: bool = False

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


@dataclass(frozen=True, slots=True)
class Stages:
    """How one view is brought to one epoch.

    Parameters
    ----------
    workload : what the session is set up for.
    is_held : change sets with several readers are computed one by one and held by the driver: a job for each, and worth it,
        since plans stay small, lookups know their keys, and what turns out to be empty is not looked up at all.
    lookup_hint : how change sets are joined with state; as of :class:`.jobs.operators.frames.Frames`.
    shuffle_tasks : of the epoch's shuffles; ``None``: as Spark is configured.
    commit, publish : who writes; ``None``: the driver up to ``Sizing.driver_commit_rows`` rows, Spark above.
    published_bytes : of the published table; ``None`` as long as nobody has looked, since there may be nothing to publish.
    way : how the change set was applied, once it is.
    """

    sizes: Sizes
    workload: Workload
    is_held: bool
    lookup_hint: str | None
    shuffle_tasks: int | None
    commit: Writer | None
    publish: Writer | None
    published_bytes: int | None = None
    way: WriteMode | None = None

    @property
    def is_small(self) -> bool:
        """Whether little enough changed for the driver to hold it."""
        return self.sizes.changed_memory_bytes <= sizing().driver_change_bytes

    def for_target(self, published_bytes: int, *, driver_writes: bool = True) -> Stages:
        """The same, for a published table of some size, to which the driver can write or not."""
        too_large = not self.sizes.only_inserts and published_bytes > sizing().driver_publish_bytes
        by_spark = too_large or not driver_writes
        return replace(self, published_bytes=published_bytes, publish=Writer.SPARK if by_spark else self.publish)

    def publishes(self, rows: int) -> Writer:
        """Who publishes a change set of so many rows."""
        if self.publish is not None:
            return self.publish
        return Writer.DRIVER if rows <= sizing().driver_commit_rows else Writer.SPARK

    def committed_by(self, writer: Writer | None) -> Stages:
        """The same, with who committed the state; ``None``: an earlier try."""
        return replace(self, commit=writer or self.commit)

    def published(self, by: Writer | None, way: WriteMode | None) -> Stages:
        """The same, with who published, and how; ``None``: an earlier try."""
        return replace(self, publish=by or self.publish, way=way or self.way)

    def lines(self) -> tuple[str, ...]:
        """One line a stage, for people."""
        sizes, limit = self.sizes, sizing()
        held = "held by the driver" if self.is_held else "computed by Spark"
        code = {
            Workload.SMALL: "expressions interpreted",
            Workload.LARGE: "code generated",
            Workload.FULL: "code generated, plans adapted",
        }[self.workload]
        tasks = "" if self.shuffle_tasks is None else f", {self.shuffle_tasks} task{'s' * (self.shuffle_tasks > 1)} a shuffle"
        either = f"the driver up to {limit.driver_commit_rows:,} rows, else Spark"
        planned = WriteMode.OVERWRITE if sizes.replaces else WriteMode.APPEND if sizes.only_inserts else WriteMode.MERGE
        into = f" into {bytes_shown(self.published_bytes)}" if self.published_bytes else ""
        publish = f"publish: {(self.way or planned).value}{into}, by {self.publish.value if self.publish else either}"
        if self.way is None and planned is WriteMode.MERGE:
            publish += "; append where no row goes"
        if sizes.is_committed:
            return "commit state: done by an earlier try", publish
        lines = [*(read.line() for read in sizes.reads), f"compute: change sets {held}, {code}{tasks}"]
        if not sizes.is_backfill:
            how = {None: "as Spark chooses", "broadcast": "broadcast", "shuffle_hash": "hashed"}[self.lookup_hint]
            places = f"{bytes_shown(sizes.state_bytes)} of state, {bytes_shown(sizes.in_place_bytes)} of sources in place"
            lines.append(f"look up: in {places}, keys {how}")
        return *lines, f"commit state: by {self.commit.value if self.commit else either}", publish


def stages_of(view: ViewEntry, sizes: Sizes, *, most_tasks: int, driver_writes: bool = True) -> Stages:
    """Plan the epoch of a view.

    Parameters
    ----------
    most_tasks : of a shuffle, as Spark is configured.
    driver_writes : whether the view's columns have names and types that the driver can write.
    """
    limit = sizing()
    changed = sizes.changed_memory_bytes
    small = changed <= limit.driver_change_bytes
    fills_empty_state = sizes.is_backfill and not sizes.is_committed
    looked_up_rows = 0 if fills_empty_state else sizes.looked_up_rows
    if view.strategy == "full":
        workload = Workload.FULL
    elif is_interpreted(sizes.changed_values, looked_up_rows):
        workload = Workload.SMALL
    else:
        workload = Workload.FULL if fills_empty_state or sizes.is_slice else Workload.LARGE
    held = changed <= (limit.driver_backfill_bytes if sizes.is_backfill else limit.driver_change_bytes)
    hint = None if not small else "broadcast" if workload is Workload.LARGE else "shuffle_hash"
    # State is never shuffled, so it is the change that tasks divide.
    tasks = None if workload is Workload.FULL else tasks_of(changed, most_tasks)
    may_publish = driver_writes and not sizes.replaces
    # Much is read in a backfill, and may come to little: a Delta write by Spark takes seconds, be it of one row.
    commit = Writer.DRIVER if small else None if sizes.is_backfill else Writer.SPARK
    publish = Writer.SPARK if not may_publish else Writer.DRIVER if small else None
    return Stages(sizes, workload, held, hint, tasks, commit, publish)


def is_interpreted(values: int, looked_up_rows: int = 0) -> bool:
    """Whether interpreting expressions takes less time than to generate and compile code for them.

    Parameters
    ----------
    values : that are computed with, rows times columns.
    looked_up_rows : rows that these are looked up in.
    """
    limit = sizing()
    return values <= limit.interpreted_values and looked_up_rows <= limit.interpreted_lookup_rows


def tasks_of(size: int, most_tasks: int) -> int:
    """The tasks of a shuffle of some bytes in memory."""
    return min(most_tasks, 1 + size // sizing().task_bytes)
