"""Small commits by delta-rs from the driver, of rows that Spark computed.

A Delta write by Spark costs jobs for its snapshot, its files and its statistics, 0.4 s and more of them where there are a
thousand rows. The same commit by delta-rs takes 10 ms. Nothing is computed here: the rows come out of one Spark job as an
Arrow table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from pyspark.sql import types as T

from relstate_dagster.state_lib.errors import EpochError
from relstate_dagster.state_lib.lake.address import Address
from relstate_dagster.state_lib.lake.table import DeltaTable, OpenedTable, exact_statistics

__all__ = [
    "Check",
    "CommitFailedError",
    "CommitProperties",
    "append_rows",
    "commit_once",
    "committing",
    "create_plain_table",
    "is_plain",
    "write_deltalake",
]

#: How often a commit is tried against others on the same table (compaction, OPTIMIZE, another run).
_TRIES: Final = 20

#: A text that is longer has no place in the log, whole or cut.
_LONG_TEXT_BYTES: Final = 64 * 1024

_PLAIN: Final = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.StringType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)


def is_plain(data_type: T.DataType) -> bool:
    """Whether Arrow and delta-rs hold a type as Spark and Delta do."""
    if isinstance(data_type, T.StructType):
        if len({name.lower() for name in data_type.names}) < len(data_type.names):
            return False
        return all(is_plain(field.dataType) for field in data_type.fields)
    if isinstance(data_type, T.ArrayType):
        return is_plain(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return is_plain(data_type.keyType) and is_plain(data_type.valueType)
    return isinstance(data_type, _PLAIN)


def write_deltalake(table_or_path: DeltaTable | str, rows: pa.Table, **options: Any) -> None:
    """As delta-rs writes, with statistics that readers can trust."""
    if isinstance(table_or_path, str):
        address = Address.parse(table_or_path)
        table_or_path, options = address.delta_rs, {"storage_options": address.options, **options}
    properties = exact_statistics(Schema.from_arrow(rows.schema), _uncuttable(rows))
    deltalake.write_deltalake(table_or_path, _in_own_buffers(rows), writer_properties=properties, **options)


def _uncuttable(rows: pa.Table) -> list[str]:
    """Text columns whose upper bound may be too long for the log.

    Spark cannot read a log with more than 20,000,000 characters of statistics in a line.
    """
    texts = [name for name in rows.column_names if pa.types.is_string(rows.schema.field(name).type)]
    lengths = {
        name: pc.max(pc.binary_length(rows[name])).as_py() or 0 for name in texts if rows[name].nbytes > _LONG_TEXT_BYTES
    }
    return [name for name, length in lengths.items() if length > _LONG_TEXT_BYTES]


def _in_own_buffers(rows: pa.Table) -> pa.Table:
    """The same rows, none a slice of others.

    Of some nested structs delta-rs aborts the process.
    """
    nested = [column for column in rows.columns if pa.types.is_nested(column.type)]
    is_slice = any(chunk.offset for column in nested for chunk in column.chunks)
    return rows.take(pa.array(range(rows.num_rows), pa.int64())) if is_slice else rows


def create_plain_table(
    path: str,
    schema: T.StructType,
    properties: Mapping[str, str],
    *,
    partition_by: Sequence[str] = (),
    comment: str | None = None,
) -> None:
    """Create an empty Delta table of plain types, without Spark, unless it exists."""
    address = Address.parse(path)
    DeltaTable.create(
        address.delta_rs,
        Schema.from_json(schema.json()),
        mode="ignore",
        partition_by=list(partition_by),
        description=comment,
        configuration=dict(properties),
        raise_if_key_not_exists=False,
        storage_options=address.options,
    )


#: Features of tables whose writers need not do more for them than delta-rs does.
_WRITABLE: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "deletionVectors",
        "generatedColumns",
        "identityColumns",
        "invariants",
        "timestampNtz",
        "variantType",
    }
)


def is_writable(table: DeltaTable) -> bool:
    """Whether delta-rs can write to an opened table.

    Others' settings may have given it features that only Spark knows.
    """
    features = table.protocol().writer_features or ()
    return _WRITABLE.issuperset(features) and table.metadata().configuration.get("delta.columnMapping.mode", "none") == "none"


def committing(app_id: str, version: int, metadata: str | None = None) -> CommitProperties:
    """Properties of an exactly-once commit: compare and swap, with a transaction id."""
    return CommitProperties(
        custom_metadata=None if metadata is None else {"userMetadata": metadata},
        max_commit_retries=0,
        app_transactions=[Transaction(app_id, version)],
    )


#: Raises where a version of a table is not the one that a writer takes it for.
Check: TypeAlias = Callable[[DeltaTable], None]


def commit_once(
    opened: OpenedTable,
    app_id: str,
    txn_version: int,
    write: Callable[[DeltaTable], dict[str, Any] | None],
    check: Check | None = None,
) -> tuple[int, dict[str, Any]] | None:
    """Make one commit, unless the application has committed this transaction version or a later one.

    Parameters
    ----------
    write : writes and commits on exactly the version it is given, or raises ``CommitFailedError``.
    check : called before each try.

    Returns
    -------
    The version of the commit and what ``write`` gave; ``None`` where the transaction was there before.

    Raises
    ------
    EpochError
        Others commit to the table all the time.
    """
    for _ in range(_TRIES):
        table = opened.latest()
        done = table.transaction_version(app_id)
        if done is not None and done >= txn_version:
            return None
        if check is not None:
            check(table)
        expected = table.version() + 1
        try:
            return expected, write(table) or {}
        except CommitFailedError:
            continue
    raise EpochError(f"{opened.path}: {_TRIES} tries to commit met a commit by others each; nothing was written, run again")


def append_rows(
    opened: OpenedTable, rows: pa.Table, *, app_id: str, txn_version: int, metadata: str, check: Check | None = None
) -> int | None:
    """Append rows in one commit; its version, or ``None`` where the transaction was there before."""

    def write(table: DeltaTable) -> None:
        write_deltalake(table, rows, mode="append", commit_properties=committing(app_id, txn_version, metadata))

    outcome = commit_once(opened, app_id, txn_version, write, check)
    return None if outcome is None else outcome[0]
