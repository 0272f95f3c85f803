"""The data files that hold a range of commits' changes, read without Delta's own change feed.

Delta plans a change feed by running Spark jobs over the table's log. The commits of a range have been read already to
check them (:meth:`jobs.sources.delta_source.DeltaSource.check_range`), so the files are known: those a commit recorded
as change data, else those it added and removed. Where a file's rows are not simply its Parquet rows (deletion vectors,
mapped column names, partition columns kept out of the files, widened types) the feed is read by Delta.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from jobs.planner.nodes import quoted
from state_lib.constants import WEIGHT

CHANGE_TYPE: Final = "_change_type"
#: Change types that mean a row is there afterwards.
INSERTIONS: Final = ("insert", "update_postimage")


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """One file: its path (as the log has it), its bytes, and the weight of its rows; 0 where a column tells it."""

    path: str
    bytes: int
    weight: int


def change_files(actions: Sequence[Mapping[str, Any]]) -> tuple[ChangeFile, ...] | None:
    """The files with the changes of one commit; ``None`` where only Delta can read them."""
    recorded = [a["cdc"] for a in actions if "cdc" in a]
    adds = [a["add"] for a in actions if a.get("add", {}).get("dataChange")]
    removes = [a["remove"] for a in actions if a.get("remove", {}).get("dataChange")]
    read = [(f, 0) for f in recorded] or [*((f, 1) for f in adds), *((f, -1) for f in removes)]
    if any(f.get("deletionVector") or f.get("partitionValues") for f, _ in read):
        return None
    return tuple(ChangeFile(f["path"], int(f.get("size") or 0), weight) for f, weight in read)


def readable_as_files(properties: Mapping[str, str], partition_columns: Sequence[str]) -> bool:
    """Whether a table's files are plain Parquet files with all of its columns."""
    mapped = properties.get("delta.columnMapping.mode", "none") != "none"
    widened = properties.get("delta.enableTypeWidening", "false").lower() == "true"
    return not (mapped or widened or partition_columns)


def full_path(table: str, path: str) -> str:
    """A file of a table, where it lies."""
    return unquote(path) if "://" in path or path.startswith("file:") else f"{table}/{unquote(path)}"


def read_changes(spark: SparkSession, table: str, files: Sequence[ChangeFile], schema: T.StructType) -> DataFrame:
    """The change set in some files: the columns of ``schema`` and the weight; no Spark job."""
    frames = []
    columns = [quoted(name) for name in schema.names]
    by_weight: dict[int, list[str]] = {}
    for file in files:
        by_weight.setdefault(file.weight, []).append(full_path(table, file.path))
    for weight, paths in by_weight.items():
        if weight:
            rows = spark.read.schema(schema).parquet(*paths)
            frames.append(rows.selectExpr(*columns, f"{weight}L AS {WEIGHT}"))
            continue
        recorded = T.StructType([*schema.fields, T.StructField(CHANGE_TYPE, T.StringType())])
        rows = spark.read.schema(recorded).parquet(*paths)
        frames.append(rows.selectExpr(*columns, f"IF({CHANGE_TYPE} IN {INSERTIONS}, 1L, -1L) AS {WEIGHT}"))
    return reduce(DataFrame.union, frames)
