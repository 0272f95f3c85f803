"""Primary keys read from files by the driver, to find duplicates among new rows.

Delta does not enforce a primary key, and a job over a whole source to check a few new rows would cost as much as a
recompute. So the new keys are compared with each other, and with the keys in the files that can hold them by their
statistics. If those have more rows than the driver reads in a moment, Spark does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from relstate_dagster.jobs.sources.change_files import CHANGE_TYPE, INSERTIONS, ChangeFile
from relstate_dagster.jobs.sources.file_layout import FileLayout
from relstate_dagster.jobs.sources.snapshot_files import SnapshotFiles
from relstate_dagster.state_lib.char_columns import char_type
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.address import full_path
from relstate_dagster.state_lib.lake.parquet import FileMetaData, opened_parquet
from relstate_dagster.state_lib.lake.statistics import DataFile

_COUNT: Final = f"{WEIGHT}_sum"
_COMPARED: Final = (
    T.IntegralType,
    T.DecimalType,
    T.StringType,
    T.BinaryType,
    T.BooleanType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)


@dataclass(frozen=True, slots=True)
class KeyProblem:
    """A broken key: its values, and its rows (1: a part of it is NULL)."""

    values: dict[str, Any]
    rows: int

    def __str__(self) -> str:
        shown = ", ".join(f"{name} = {'NULL' if value is None else repr(value)}" for name, value in self.values.items())
        if any(value is None for value in self.values.values()):
            return f"a row has a NULL in it ({shown}); remove such rows, or declare the source without a key"
        return f"{self.rows} rows have {shown}; remove all but one, or declare the source without a key"


def changed_keys(layout: FileLayout, files: Sequence[ChangeFile], key: Sequence[str]) -> pa.Table:
    """The keys that some files' changes have, and their weights."""
    # Files from before a type was widened have the narrower one.
    return pa.concat_tables([_changed_keys(layout, file, key) for file in files], promote_options="permissive")


def _changed_keys(layout: FileLayout, file: ChangeFile, key: Sequence[str]) -> pa.Table:
    if file.weight:
        keys = _keys_of(layout, file.path, key, file.partition)
        keys = keys if file.positions is None else keys.take(file.positions)
        return keys.append_column(WEIGHT, pa.repeat(pa.scalar(file.weight, pa.int64()), keys.num_rows))
    rows = _keys_of(layout, file.path, key, file.partition, CHANGE_TYPE)
    insertion = pc.is_in(rows[CHANGE_TYPE], value_set=pa.array(INSERTIONS, rows.schema.field(CHANGE_TYPE).type))
    weights = pc.if_else(insertion, pa.scalar(1, pa.int64()), pa.scalar(-1, pa.int64()))
    return rows.select(list(key)).append_column(WEIGHT, weights)


def new_keys(changes: pa.Table, key: Sequence[str]) -> pa.Table | KeyProblem:
    """Keys that are new once changes are applied, or the first broken one.

    That is NULL, or came in twice.

    Parameters
    ----------
    changes : the key's columns and the weight.
    """
    net = changes.group_by(list(key)).aggregate([(WEIGHT, "sum")])
    null = null_key(net.filter(pc.greater(net[_COUNT], 0)), key)
    if null is not None:
        return null
    twice = net.filter(pc.greater(net[_COUNT], 1))
    if twice.num_rows:
        return _problem(twice, key, twice[_COUNT][0].as_py())
    return net.filter(pc.equal(net[_COUNT], 1)).select(list(key))


def files_with(new: pa.Table, key: Sequence[str], before: SnapshotFiles) -> tuple[DataFile, ...]:
    """Files that can have some of these keys, by their statistics."""
    bounds = {column: tuple(pc.min_max(new[column]).as_py().values()) for column in key}
    return tuple(file for file in before.files if all(_may_have(file, column, *bounds[column]) for column in key))


def problem_with_new(new: pa.Table, key: Sequence[str], before: SnapshotFiles) -> KeyProblem | None:
    """The first of some new keys that the rows of a table had already."""
    layout = before.layout
    if layout is None:
        raise SourceError("the keys of this table can only be read by Delta")
    for file in before.files:
        held = before.deleted.without(file.path, _keys_of(layout, file.path, key, file.partition)).cast(new.schema)
        there = new.join(held, keys=list(key), join_type="left semi", use_threads=False)
        if there.num_rows:
            return _problem(there, key, 2)
    return None


def are_compared_by_arrow(schema: T.StructType, key: Sequence[str]) -> bool:
    """Whether Arrow compares keys as Spark does.

    Not NaN and -0.0, nor texts that are padded or collated.
    """
    fields = [schema[column] for column in key]
    types = [field.dataType for field in fields]
    return not any(map(char_type, fields)) and all(
        isinstance(t, _COMPARED) and (not isinstance(t, T.StringType) or t == T.StringType()) for t in types
    )


def _may_have(file: DataFile, column: str, lowest: Any, highest: Any) -> bool:
    """Whether a file can have a value between two others, by its statistics."""
    if column not in file.lower or column not in file.upper:
        return True
    return not (file.upper[column] < lowest or file.lower[column] > highest)


def _keys_of(layout: FileLayout, path: str, key: Sequence[str], partition: Mapping[str, Any], *more: str) -> pa.Table:
    """Columns of a file by the table's names, and ``more`` that it has.

    Deleted rows are included.
    """
    stored = [column for column in key if column not in layout.partitioned_by]
    if not stored:  # some column, since files without any are without rows
        stored = [next(name for name in layout.schema.names if name not in layout.partitioned_by)]
    rows = read_keys(layout.table, path, [*(layout.physical[column] for column in stored), *more])
    rows = rows.rename_columns([*stored, *more])
    for column in layout.partitioned_by:
        if column in key:
            rows = rows.append_column(column, pa.repeat(layout.value(column, partition), rows.num_rows))
    return rows.select([*key, *more])


def read_keys(
    table: str, path: str, columns: list[str], *, row_group: int | None = None, footer: FileMetaData | None = None
) -> pa.Table:
    """Columns of one file or row group.

    Texts are plain strings, whatever the writer noted.
    """
    with opened_parquet(full_path(table, path), footer) as parquet:
        wanted = range(parquet.num_row_groups) if row_group is None else [row_group]
        rows = parquet.read_row_groups(list(wanted), columns=columns, use_threads=False)
    fields = [f.with_type(plain_type(f.type)).with_nullable(True).remove_metadata() for f in rows.schema]
    return rows.cast(pa.schema(fields)).select(columns)


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """The type in which keys are compared, of a column of a file."""
    # Spark writes a TIMESTAMP as INT96 by default, which comes without the zone that bounds in the log have.
    if data_type == pa.timestamp("ns"):
        return pa.timestamp("us", "UTC")
    return _PLAIN_TYPES.get(data_type, data_type)


_PLAIN_TYPES: Final = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def null_key(keys: pa.Table, key: Sequence[str]) -> KeyProblem | None:
    """The first row with a NULL in its key."""
    for column in key:
        if keys[column].null_count:
            return _problem(keys.filter(pc.is_null(keys[column])), key, 1)
    return None


def _problem(rows: pa.Table, key: Sequence[str], count: int) -> KeyProblem:
    return KeyProblem({name: rows[name][0].as_py() for name in key}, count)
