"""A stream written to Delta once, and replayed to every view that is measured.

The changes of a stream are applied by delta-rs, or by Spark (``marked``), to a copy of the base tables, and the tables with
all of their versions are kept. A view is measured over a *replay*: a copy made of hard links (data files are never written
twice), whose log holds the base only. An epoch's changes are added by linking the next commits into that log. So every
query at a scale factor sees the same files and the same versions, and no time is spent on writing changes again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import deltalake
from pyspark.sql import SparkSession

from benchmarks.data import base_tables, generate, sf_folder, writer_properties
from benchmarks.queries import TABLES
from benchmarks.streams import Base, Change, changes, epochs_possible

_MANIFEST = "series.json"


@dataclass(frozen=True)
class Series:
    """The base tables, and the versions that each epoch of a stream brings them to.

    Parameters
    ----------
    folder : holds the tables.
    versions : for each epoch (the base is the first), the version of every table.
    rows : for each epoch (none for the base), the rows changed in each table.
    """

    folder: Path
    versions: tuple[dict[str, int], ...]
    rows: tuple[dict[str, int], ...]

    @property
    def epochs(self) -> int:
        """Epochs of changes after the base."""
        return len(self.rows)

    def replay(self, target: Path, tables: Sequence[str] = TABLES) -> Replay:
        """A working copy of some tables, at the base."""
        return Replay(self, target, tuple(tables))


class Replay:
    """Tables that a view reads, brought forward epoch by epoch."""

    def __init__(self, series: Series, target: Path, tables: tuple[str, ...]) -> None:
        self.series = series
        self.target = target
        self.tables = tables
        self.epoch = 0
        for table in tables:
            link_table(series.folder / table, target / table, until=series.versions[0][table])

    def path(self, table: str) -> str:
        """Path of a table."""
        return str(self.target / table)

    def changes_next(self) -> bool:
        """Whether the next epoch changes any of the tables."""
        return any(self.series.rows[self.epoch].get(t) for t in self.tables)

    def advance(self) -> dict[str, int]:
        """Apply the next epoch's changes; returns changed rows by table."""
        before, after = self.series.versions[self.epoch], self.series.versions[self.epoch + 1]
        for table in self.tables:
            for version in range(before[table] + 1, after[table] + 1):
                # The commit, and the checkpoint if delta-rs made one there.
                for file in sorted((self.series.folder / table / "_delta_log").glob(f"{version:020d}.*")):
                    _link(file, self.target / table / "_delta_log" / file.name)
        self.epoch += 1
        return {t: n for t, n in self.series.rows[self.epoch - 1].items() if n and t in self.tables}


def series_name(stream: str, size: str, epochs: int, seed: int) -> str:
    """The folder of a series."""
    return f"{stream}-{size.replace('%', 'percent')}-{epochs}-seed{seed}"


def build_series(
    data: Path,
    sf: float,
    stream: str,
    size: str,
    epochs: int,
    seed: int,
    tell: Callable[[str], None] = lambda _: None,
    spark: Callable[[], SparkSession] | None = None,
) -> Series:
    """The series of a stream; made if it is not there.

    Parameters
    ----------
    epochs : how many are wanted; fewer are made where the stream runs out of keys.
    spark : what writes some streams; asked for if it is needed.
    """
    base = base_tables(data, sf)
    generated = Base(generate(data, sf))
    possible = epochs_possible(generated, stream, size)
    epochs = epochs if possible is None else min(epochs, possible)
    folder = sf_folder(data, sf) / "series" / series_name(stream, size, epochs, seed)
    if (folder / _MANIFEST).exists():
        return read_series(folder)
    shutil.rmtree(folder, ignore_errors=True)
    for table in TABLES:
        link_table(base / table, folder / table)
    apply = apply_change
    if stream == "marked":
        if spark is None:
            raise ValueError(f"{stream} is written by Spark, and none was given")
        for table in TABLES:
            mark_deletions(spark(), folder / table)
        apply = partial(merge_by_spark, spark())
    versions = [_versions(folder)]
    rows: list[dict[str, int]] = []
    for number, epoch in enumerate(islice(changes(generated, stream, size, seed), epochs)):
        tell(f"writing {stream} {size}, epoch {number + 1} of {epochs}")
        changed = {c.table: apply(folder / c.table, c) for c in epoch}
        rows.append(changed)
        versions.append(_versions(folder))
    manifest = {"versions": versions, "rows": rows}
    (folder / _MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    return read_series(folder)


def apply_change(path: Path, change: Change) -> int:
    """Write one change to a table by delta-rs; returns the rows that it changed."""
    if change.kind == "append":
        deltalake.write_deltalake(str(path), change.rows, mode="append", writer_properties=writer_properties())
        return int(change.rows.num_rows)
    on = " AND ".join(f"t.{c} = s.{c}" for c in change.by)
    merger = deltalake.DeltaTable(str(path)).merge(
        change.rows, on, source_alias="s", target_alias="t", writer_properties=writer_properties()
    )
    if change.kind == "delete":
        return int(merger.when_matched_delete().execute()["num_target_rows_deleted"])
    new = {c: f"s.{c}" for c in change.rows.column_names if c not in change.by}
    return int(merger.when_matched_update(new).execute()["num_target_rows_updated"])


def mark_deletions(spark: SparkSession, path: Path) -> None:
    """Mark rows of a table as deleted from now on, without rewriting files."""
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")


def merge_by_spark(spark: SparkSession, path: Path, change: Change) -> int:
    """Write one update to a table by Spark's MERGE; returns the rows that it changed."""
    if change.kind != "update":
        raise ValueError(f"{change.kind} of {change.table}: Spark writes updates only")
    spark.createDataFrame(change.rows).createOrReplaceTempView("changed")
    on = " AND ".join(f"t.{c} = s.{c}" for c in change.by)
    new = ", ".join(f"t.{c} = s.{c}" for c in change.rows.column_names if c not in change.by)
    merged = spark.sql(f"MERGE INTO delta.`{path}` t USING changed s ON {on} WHEN MATCHED THEN UPDATE SET {new}")
    return int(merged.collect()[0]["num_updated_rows"])


def link_table(source: Path, target: Path, until: int | None = None) -> None:
    """Copy a Delta table by hard links, up to a version (all by default)."""
    for file in source.rglob("*"):
        inside = file.relative_to(source)
        if not file.is_file():
            continue
        if inside.parts[0] == "_delta_log":
            version = file.name.split(".")[0]
            # The pointer to the last checkpoint is of the newest version only; readers find checkpoints without it.
            if not version.isdigit() or (until is not None and int(version) > until):
                continue
        (target / inside).parent.mkdir(parents=True, exist_ok=True)
        _link(file, target / inside)


def _versions(folder: Path) -> dict[str, int]:
    return {t: int(deltalake.DeltaTable(str(folder / t)).version()) for t in TABLES}


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)


def read_series(folder: Path) -> Series:
    """The series that a folder holds."""
    manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    return Series(folder, tuple(manifest["versions"]), tuple(manifest["rows"]))
