"""Data files with a range of changes, read without Delta's change feed.

Delta plans a change feed by running Spark jobs over the table's log. The commits of a range have been read already to check
them (:meth:`.jobs.sources.delta_changes.DeltaChanges.check_range`). So the files are known: those a commit recorded as change
data, else those it added and removed. A deletion that only marks rows records nothing: its rows are those at the places
that its deletion vectors have and the version before did not. Where the files' layout does not tell their rows, and after
many deletions of that kind, the feed is read by Delta.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from relstate_dagster.jobs.sources.deleted_rows import DeletedRows, rows_at
from relstate_dagster.jobs.sources.file_layout import FileLayout
from relstate_dagster.jobs.sources.row_tracking import RowTracking
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.lake.log import Action, files_of
from relstate_dagster.state_lib.sql_text import quoted

CHANGE_TYPE: Final = "_change_type"
#: Change types that mean a row is there afterwards.
INSERTIONS: Final = ("insert", "update_postimage")


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A file with changes.

    Parameters
    ----------
    path : as the log has it.
    bytes : its size.
    weight : of its rows; 0 where a column tells it.
    partition : its partition values as the log has them, text or ``None``.
    positions : the places of the rows that are changes; ``None`` for all rows.
    """

    path: str
    bytes: int
    weight: int
    partition: Mapping[str, str | None] = field(default_factory=dict)
    positions: pa.Int64Array | None = None


#: The rows that were deleted in the files of a table before a commit, and after it; ``None`` where that is not known.
Vectors: TypeAlias = Callable[[], tuple[DeletedRows, DeletedRows] | None]


def change_files(layout: FileLayout, actions: list[Action], vectors: Vectors = lambda: None) -> tuple[ChangeFile, ...] | None:
    """The files with the changes of one commit; ``None`` where only Delta can read them.

    Parameters
    ----------
    actions : of the commit.
    vectors : asked only if rows were deleted without a change being recorded.
    """
    recorded, adds, removes = files_of(actions)
    read = [(f, 0) for f in recorded] or [*((f, 1) for f in adds), *((f, -1) for f in removes)]
    files = [ChangeFile(f["path"], int(f.get("size") or 0), weight, f.get("partitionValues") or {}) for f, weight in read]
    if not all(layout.has_partition_values(file.path, file.partition) for file in files):
        return None
    if not any(f.get("deletionVector") for f, _ in read):
        return tuple(files)
    known = vectors()
    if known is None:
        return None
    rows: Counter[str] = Counter()
    for f, _ in read:  # what removes a file may tell nothing of it
        rows[f["path"]] = max(rows[f["path"]], int(json.loads(f.get("stats") or "{}").get("numRecords") or 0))
    return tuple(_of_marked(files, rows, *known))


def _of_marked(
    files: Sequence[ChangeFile], rows: Mapping[str, int], before: DeletedRows, after: DeletedRows
) -> Iterator[ChangeFile]:
    """Changes in files added and removed by a commit, without rows deleted in them.

    What a file lost or got back by another vector is in the difference of the two, and nothing else of it is read.
    """
    times = Counter(file.path for file in files)
    for file in files:
        is_added = file.weight > 0
        of_file, of_other = (after, before) if is_added else (before, after)
        deleted = of_file.positions(file.path)
        if times[file.path] > 1:
            deleted = deleted.filter(pc.invert(pc.is_in(deleted, value_set=of_other.positions(file.path))))
        else:
            yield file
        if len(deleted):
            share = len(deleted) / max(rows[file.path], len(deleted))
            yield replace(file, weight=-file.weight, positions=deleted, bytes=math.ceil(file.bytes * share))


def read_changes(
    spark: SparkSession, layout: FileLayout, files: Sequence[ChangeFile], tracking: RowTracking | None = None
) -> DataFrame:
    """The change set in some files: the table's columns and the weight; no Spark job.

    Spark is never given a file twice: one that was added, removed and restored counts as often as all of that says.

    Parameters
    ----------
    tracking : has rows come with their ids and versions; no file has recorded changes.
    """
    columns = [quoted(name) for name in layout.schema.names]
    frames = []

    def rows_of(paths: Sequence[str]) -> DataFrame:
        if tracking is None:
            return layout.read(spark, paths)
        return tracking.tracked(layout.table, layout.read(spark, paths, *tracking.fields), layout.schema.names, paths)

    recorded = [file.path for file in files if not file.weight]
    if recorded:
        rows = layout.read(spark, recorded, T.StructField(CHANGE_TYPE, T.StringType()))
        frames.append(rows.selectExpr(*columns, f"IF({CHANGE_TYPE} IN {INSERTIONS}, 1L, -1L) AS {WEIGHT}"))
    for weight, paths in _by_weight(files).items():
        frames.append(rows_of(paths).selectExpr("*", f"{weight}L AS {WEIGHT}"))
    for weight, places in places_by_weight(files).items():
        frames.append(rows_at(spark, rows_of(list(places)), places).selectExpr("*", f"{weight}L AS {WEIGHT}"))
    return reduce(DataFrame.union, frames) if frames else layout.read(spark, []).selectExpr(*columns, f"1L AS {WEIGHT}")


def _by_weight(files: Sequence[ChangeFile]) -> dict[int, list[str]]:
    """Files whose rows are all changes, by their summed weights."""
    total: Counter[str] = Counter()
    for file in files:
        if file.positions is None:
            total[file.path] += file.weight
    return {weight: [path for path, of_path in total.items() if of_path == weight] for weight in set(total.values()) - {0}}


def places_by_weight(files: Sequence[ChangeFile]) -> dict[int, dict[str, pa.Int64Array]]:
    """Places of changed rows in partly changed files, by their summed weights."""
    weighted: dict[str, list[pa.Table]] = {}
    for file in files:
        if file.positions is not None:
            weights = pa.repeat(pa.scalar(file.weight, pa.int64()), len(file.positions))
            weighted.setdefault(file.path, []).append(pa.table({"place": file.positions, "weight": weights}))
    found: dict[int, dict[str, pa.Int64Array]] = {}
    for path, tables in weighted.items():
        net = pa.concat_tables(tables).group_by("place").aggregate([("weight", "sum")])
        for weight in pc.unique(net["weight_sum"]).to_pylist():
            if weight:
                at = net.filter(pc.equal(net["weight_sum"], weight))["place"]
                found.setdefault(weight, {})[path] = at.combine_chunks()
    return found
