"""Sizes at which work is done in another way.

They decide how fast an epoch is, never its result.

:class:`Sizing` has those by which an epoch is planned, before it runs: only :mod:`.jobs.view_epoch.plan` reads them, and its
steps carry them to where they apply. :class:`Tuning` has those of single lookups, sources, indexes and tables.

Each has the measurement or the reason behind it. ``RELSTATE_SIZING`` changes some of them, for a driver with more memory or
another disk: ``RELSTATE_SIZING='driver_change_bytes=268435456'``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from typing import Final

from relstate_dagster.state_lib.errors import DeclarationError

_VARIABLE: Final = "RELSTATE_SIZING"
_KIB: Final = 1024
_MIB: Final = 1024 * _KIB


def _int(default: int, why: str, least: int = 0) -> int:
    """A field with its reason, and the least value that makes sense."""
    return field(default=default, metadata={"why": why, "least": least})


def _float(default: float, why: str) -> float:
    return field(default=default, metadata={"why": why, "least": 0})


@dataclass(frozen=True, slots=True)
class Sizing:
    """Limits by which an epoch is planned: in rows, values, and bytes."""

    # -- what the driver does, and what Spark does
    driver_change_bytes: int = _int(
        128 * _MIB,
        "Changes up to this size, in memory, are broadcast, and their results written and committed by the driver: a Delta "
        "commit by Spark takes 0.4 to 1.9 s.",
    )
    driver_held_bytes: int = _int(
        32 * _MIB,
        "The driver holds rows up to this size, in memory, and sends them to the tasks that read them; Spark holds more. With "
        "a driver of 2 GiB, 252 MiB (1.5 M lines, 59 MB of files) ended an epoch of Q21, and 64 MiB a broadcast in it.",
    )
    driver_collected_bytes: int = _int(
        128 * _MIB,
        "More rows than this, in memory, are not brought to the driver: a task makes its result a whole, and some copies of "
        "it. A driver of 2 GiB ended where an update of 10 nations met 4.8 million lines.",
        least=_MIB,
    )
    driver_backfill_bytes: int = _int(
        8 * _MIB,
        "A backfill of inputs up to this size, in memory, is computed step by step on the driver, as an epoch is. Larger ones "
        "read their inputs again instead of holding them: 4 MB of files, 139,000 wide rows, filled a driver of 2 GB.",
    )
    object_rows_bytes: int = _int(
        32 * _MIB,
        "Rows with several readers are kept by Spark as objects in changes up to this size, in memory, and as bytes in "
        "larger ones and in backfills. Two million rows of eight columns took 343 MB as objects and 70 MB as bytes; reading "
        "them took 0.9 and 1.7 processor seconds. A build of 72 views held 5.4 million objects, which filled a heap of 2 GB.",
    )
    driver_commit_bytes: int = _int(
        64 * _MIB,
        "Spark keeps what a backfill makes of inputs beyond `driver_backfill_bytes`. Up to this size, in memory, the driver "
        "commits it: a first commit by Spark takes 10 to 20 s longer. With 128 MiB, three backfills of 530,000 rows at a time "
        "filled a heap of 2 GB.",
    )
    driver_commit_rows: int = _int(
        20_000, "Results up to this many rows are published by the driver, whatever they were computed from."
    )
    driver_publish_bytes: int = _int(
        64 * _MIB,
        "Rows of a published table up to this size are replaced by the driver. Of a larger one Spark does it, in three jobs "
        "or more. Files are rewritten as a whole, where the table has no deletion vectors.",
    )
    replaced_key_bytes: int = _int(
        _MIB,
        "Keys of up to this size are named to Delta, in a larger published table: it deletes their rows and appends others in "
        "one commit. Its log has the keys, twice as long. More are merged, which joins the whole table with them.",
    )
    driver_summed_rows: int = _int(
        200_000, "The driver sums up to this many rows to find those that cancel out; beyond, it takes longer than they save."
    )
    driver_keys: int = _int(
        16_000_000, "The driver checks up to this many primary keys for duplicates: 16 bytes each, for a key of two numbers."
    )
    driver_checked_bytes: int = _int(
        32 * _MIB,
        "The driver checks the keys of a published table up to this size for duplicates. It takes 0.01 s for 50,000 rows, and "
        "1 s for the 5 million that fit at most. A Spark job takes 0.5 s at least.",
    )
    driver_compaction_bytes: int = _int(
        32 * _MIB, "State tables up to this size are rewritten by the driver, right after an epoch; larger ones by Spark."
    )
    shared_read_bytes: int = _int(
        8 * _MIB,
        "Changes up to this size that several views read are read once and held by the driver. Of more, each view reads the "
        "columns that it needs, in parallel.",
    )

    # -- when all rows of a view are computed (docs/epochs.md)
    recompute_share: float = _float(
        0.3,
        "All rows of a view are computed, and compared with those that it has, where more than this share of what it reads has "
        "changed, or is expected to change in it. To follow a change takes about three times as long a row.",
    )
    recompute_values: int = _int(
        10_000,
        "They are so only where this many values have changed: a small change is followed in less than a second.",
    )

    # -- how Spark runs an epoch
    interpreted_values: int = _int(
        50_000,
        "With changes of up to this many values, rows times columns, generating and compiling code takes longer than it saves "
        "(half of such an epoch), so expressions are interpreted.",
    )
    interpreted_lookup_rows: int = _int(
        200_000, "Code is also interpreted only if changes are looked up in at most this many rows: all of them are scanned."
    )
    interpreted_recomputed_rows: int = _int(
        20_000,
        "Nor is it interpreted if the state that windows, limits and groups are computed from again has more rows than this: "
        "two windows over 53,000 rows took 32 s of an epoch interpreted, and 12 s compiled.",
    )
    task_bytes: int = _int(16 * _MIB, "Bytes in memory of a change set for each task of a shuffle.", least=1)
    task_rows: int = _int(
        100_000, "Rows of state that windows, limits and groups are computed from again, for each task of a shuffle.", least=1
    )
    searched_rows: int = _int(
        1_000_000, "New primary keys are looked for in files with up to this many rows by the driver; in more, by Spark."
    )

    compaction_growth: int = _int(
        2, "A state table is rewritten once it has this many times the rows it had after the last rewrite."
    )
    compaction_spare_rows: int = _int(10_000, "It also needs this many rows more: below that no lookup gets faster.")


@dataclass(frozen=True, slots=True)
class Tuning:
    """Limits within one lookup, source, index or state table."""

    # -- what the driver does, and what Spark does
    local_relation_bytes: int = _int(
        256 * _KIB,
        "Rows up to this size are a part of Spark's plan: filters that let none of them pass end the plan there. More are "
        "handed to the tasks as Arrow batches.",
    )
    slice_bytes: int = _int(
        4096 * _MIB,
        "A view whose largest source has more than 1.5 times this is built in slices of at least this many bytes: a run that "
        "dies loses one slice.",
        least=1,
    )
    slices: int = _int(8, "It is built in about this many slices at most.", 1)
    slice_lookups: float = _float(
        1.0,
        "A slice is at least this many times as large as the sources that it is joined with, which each slice reads. Q18, "
        "which joins the source that is sliced with itself, took five times as long in seven slices.",
    )
    summed_by_each_rows: int = _int(
        20_000,
        "Each reader sums the counts of values in a change of up to this many rows, which spares a job a call. An epoch of "
        "`max` over few groups runs two or three jobs instead of three or four.",
    )
    kept_limit_rows: int = _int(10_000, "LIMIT and OFFSET up to this many rows keep the first rows apart from their input.")
    kept_frame_rows: int = _int(
        512,
        "Windows with frames of up to this many rows keep the last rows of each partition apart from their input. With one new "
        "row in each of 200 partitions and frames of 364 rows, epochs took as long with them over partitions of 780 rows. Over "
        "those of 2,340 rows they took 3.3, 1.8 and 1.7 s, and 4.3, 2.6 and 2.0 s without.",
    )
    slid_frame_rows: int = _int(
        64,
        "Frames of more rows than this are computed for changed results one by one: Spark slides a frame over all kept rows, "
        "and adds up all of its rows each time.",
    )
    single_results: int = _int(
        64, "Results are computed one by one in partitions with up to this many of them; others are read in full."
    )

    # -- how Spark runs an epoch
    brief_run_bytes: int = _int(
        128 * _MIB,
        "A run that reads up to this many bytes, in a process of its own, optimizes no compiled code. Ten views of 40 changed "
        "flights took 10.6 s and not 15.5, Q18 built from 166 MB 17.6 s and not 22.0. From 698 MB it took as long, and Q1 22 s "
        "and not 17.",
    )
    brief_run_views: int = _int(
        100,
        "A run of more views than this optimizes: it takes minutes, in which that pays. Tests over few rows took a quarter "
        "less without in their first four minutes, and longer once they had taken five.",
    )

    # -- lookups
    unfiltered_rows: int = _int(
        500_000, "Files with up to this many rows together are read as they are: a filter on them costs more than it saves."
    )
    vnode_keys: int = _int(
        500,
        "The vnodes of up to this many distinct keys are worked out by the driver (25 µs each); of more, all are read. Five "
        "groups of a million in 128 vnodes: 10 files opened and not 256, 1.5 s and not 3.0.",
    )
    listed_keys: int = _int(32, "Up to this many keys are pushed down one by one, wherever they are.")
    listed_integers: int = _int(
        4_000, "Up to this many whole numbers are pushed down one by one where that skips pages; of more, their range is."
    )
    listed_share: float = _float(0.9, "A list of keys skips pages if what it leaves has less than this share of rows.")
    range_share: float = _float(0.5, "A range of keys that spans more than this share of the rows is not pushed down.")
    page_rows: int = _int(20_000, "Rows of a Parquet page, as most writers cut them.", least=1)
    sent_rows: int = _int(50_000, "A whole join side of up to this many rows is broadcast; above it, Spark chooses.")
    whole_state_rows: int = _int(20_000, "Old state of up to this many rows is read whole and not by the keys of a change.")
    arranged_lookup_rows: int = _int(
        500_000, "A filtered join side is kept in state, by its key, once a lookup in its source reads this many rows."
    )
    arranged_one_in: int = _int(4, "It is not kept if more than one row in this many passes the filter.", least=1)
    arranged_rows: int = _int(1_000_000, "It is not kept if more than this many rows pass: the driver holds them once.")
    sample_rows: int = _int(100_000, "How many rows a filter lets through is estimated from files with this many rows.")

    # -- sources
    marking_commits: int = _int(
        8,
        "Deletion vectors of up to this many commits of a range are compared to find the deleted rows; with more, Delta's "
        "change feed is read, or, without one, the vectors of the two versions.",
    )
    marked_rows: int = _int(1_000_000, "Places of up to this many deleted rows are broadcast to the tasks that read the files.")
    tracked_rows: int = _int(
        100_000,
        "In rewritten files of this many rows, unchanged ones are found by their ids, in a job of its own, where tables track "
        "rows. Of fewer rows all columns are compared.",
    )
    tracked_row_bytes: int = _int(
        64,
        "The ids are used where the columns that views read take this many bytes a row. A change of 100 in 2 M rows took 6 to "
        "13 s by ids and 24 to 32 s by 18 columns, 6 to 9 s and 8 to 11 s with five; with two, a quarter longer by ids.",
    )
    footer_files: int = _int(
        8, "Rows of up to this many removed files are counted in their footers; of more, in the log of the version before."
    )
    folder_batch_files: int = _int(
        10_000,
        "Up to this many files of a folder are read and committed together: a million files at first make a hundred commits.",
        least=1,
    )
    folder_batch_bytes: int = _int(
        4096 * _MIB,
        "Up to this many bytes of a folder's files are read and committed together: a read that is stopped loses no more.",
        least=1,
    )
    keys_read_at_once: int = _int(
        2_000_000, "Row groups are read until they have this many keys; what is held is sorted again each time.", least=1
    )

    # -- indexes of sources
    index_page_rows: int = _int(
        2_000,
        "Rows of an index page: of 60 M lines those of 920 parts are read in 1.0 s (6.4 s unsorted).",
        least=1,
    )
    index_file_bytes: int = _int(64 * _MIB, "Bytes of the source for each file of an index.", least=1)
    index_small_bytes: int = _int(8 * _MIB, "Appended files of an index up to this size count as small.")
    index_files: int = _int(8, "Small files of an index are merged once there are more than this many.")
    index_change_bytes: int = _int(64 * _MIB, "An index is read with up to this many bytes of changes that came after it.")
    index_fewer: int = _int(2, "An index is used if it reads this many times fewer rows: the changes since are read as well.")
    index_commits: int = _int(8, "Changes are appended to an index after this many commits of its source.")
    index_appended_rows: int = _int(100_000, "Changes are appended to an index after this many rows, however few the commits.")
    index_appended_share: float = _float(
        0.25, "An index is built again once appended changes, which are in no order, are more than this share of its rows."
    )
    advised_rows: int = _int(
        2_000_000, "Lookups that read fewer rows than this take less than a second; no index is advised, nor deletion vectors."
    )
    advised_times: int = _int(4, "They are advised where this many times fewer rows would be read, or written.")

    # -- state
    vnode_bytes: int = _int(
        128 * _MIB,
        "A vnode of a table holds this much before the number of vnodes doubles: what one task sorts and writes. Below it, a "
        "vnode more is only a file more in each epoch.",
        least=1,
    )
    runs_per_partition: int = _int(8, "A partition of state with more files than this has its small ones merged.")
    small_run_bytes: int = _int(8 * _MIB, "Files of state up to this size count as small.")
    fenced_rows: int = _int(
        200_000,
        "When a LIMIT has to read all of its input, the driver holds at most this many of its first rows, to note the fences.",
    )

    # -- full refreshes that ``auto`` chooses (docs/epochs.md)
    comparable_change: int = _int(4, "The cost of a change predicts that of changes up to this many times as large.", least=2)
    recompute_margin: float = _float(
        1.5, "A view is recomputed where its change would take this many times as long: both vary by half."
    )
    recompute_seconds: float = _float(
        20.0,
        "The change also has to take this many seconds longer: a fresh process takes up to 20 s more than later.",
    )
    recompute_uses: int = _int(8, "A known cost is used this often; then the change is computed again, and measured.")

    # -- VERIFY
    compared_pairs_rows: int = _int(500, "Up to this many rows without a partner are compared each with each.")


@dataclass(frozen=True, slots=True)
class SizeSettings:
    """All sizes that a process goes by."""

    sizing: Sizing = field(default_factory=Sizing)
    tuning: Tuning = field(default_factory=Tuning)

    def changed(self, **changes: float) -> SizeSettings:
        """The same, with other values for some sizes.

        Raises
        ------
        TypeError : there is no size of some name.
        """
        of_epoch = {f.name for f in fields(Sizing)}
        return SizeSettings(
            replace(self.sizing, **{name: value for name, value in changes.items() if name in of_epoch}),  # type: ignore[arg-type]
            replace(self.tuning, **{name: value for name, value in changes.items() if name not in of_epoch}),  # type: ignore[arg-type]
        )

    def table(self) -> str:
        """All sizes with their values and reasons, as a Markdown table."""
        both = [(f, getattr(of, f.name)) for of in (self.sizing, self.tuning) for f in fields(of)]
        rows = [f"| `{f.name}` | {_shown(f.name, value)} | {f.metadata['why']} |" for f, value in both]
        return "\n".join(["| size | by default | why |", "|---|---|---|", *rows])


def _shown(name: str, value: float) -> str:
    """A value as people read it: bytes in MiB."""
    return f"{value // _MIB} MiB" if name.endswith("_bytes") and value % _MIB == 0 else f"{value:,}"


def _from_environment() -> SizeSettings:
    """The defaults, changed as the environment says.

    Raises
    ------
    DeclarationError : the variable names no size, or gives one no number.
    """
    defaults = SizeSettings()
    both = [(f, getattr(of, f.name)) for of in (defaults.sizing, defaults.tuning) for f in fields(of)]
    known = {f.name: type(value) for f, value in both}
    least = {f.name: f.metadata["least"] for f, _ in both}
    changed: dict[str, int | float] = {}
    for setting in filter(None, (part.strip() for part in os.environ.get(_VARIABLE, "").split(","))):
        name, _, value = (part.strip() for part in setting.partition("="))
        if name not in known:
            raise DeclarationError(f"{_VARIABLE}: there is no size {name!r}; there are {', '.join(known)}")
        try:
            changed[name] = known[name](value)
        except ValueError:
            raise DeclarationError(f"{_VARIABLE}: {name} is a number, not {value!r}") from None
        if not changed[name] >= least[name]:
            raise DeclarationError(f"{_VARIABLE}: {name} is at least {least[name]}, not {value}")
    return defaults.changed(**changed)


_current: SizeSettings | None = None


def current_sizes() -> SizeSettings:
    """The sizes that this process goes by."""
    global _current  # noqa: PLW0603 - read from the environment once
    if _current is None:
        _current = _from_environment()
    return _current
