"""Rows of a view's state tables for people: merged, in key order, with names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare.names import as_declared
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.key_text import check_values, key_of, parse_key
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_store import StateStore
from relstate_dagster.state_lib.table_schema import MergeRule, StateTableDesc, StateTableSchema

#: Values of the first columns of a storage primary key: in order, by name, or as text (:mod:`.state_lib.key_text`).
Key: TypeAlias = Sequence[Any] | Mapping[str, Any] | str


def state_rows(
    spark: SparkSession,
    warehouse: Warehouse,
    view: str,
    table_id: int,
    *,
    key: Key | None = None,
    prefix: Key | None = None,
    columns: Sequence[str] | None = None,
    epoch: int | None = None,
) -> DataFrame:
    """Rows of one state table as of an epoch.

    Read from files of their vnode whose key range may hold them.

    Parameters
    ----------
    key : all values of the storage primary key: the one row.
    prefix : values of its first columns: the rows that have these.
    columns : the columns wanted; all by default.
    epoch : one that the catalog retains; by default the last.

    Returns
    -------
    DataFrame
        ``columns``, and ``_weight`` where weights add up; in key order.

    Raises
    ------
    DeclarationError : there is no such view, table, column or epoch, the view has no epoch yet, or a value is not of its
        column's type.
    """
    catalog = warehouse.read()
    entry = catalog.view(view)
    desc = _table(entry, table_id)
    wanted = _columns(desc.schema, columns)
    values = _values(desc.schema, key, prefix)
    at = _epoch(entry, epoch)
    store = StateStore(spark, StateFiles(warehouse.state_path(entry)), entry.tables)
    storage = store.storage_table(table_id, version=_state_version(catalog, entry.name, at), epoch=at)
    # With the key, rows stay apart that are equal in the columns wanted.
    parts = [part.column for part in desc.schema.storage_key if part.column not in wanted]
    rows = storage.scan(values, [*wanted, *parts])
    weight = [WEIGHT] if desc.schema.merge is MergeRule.SUM else []
    return rows.select(*map(quoted, wanted), *weight)


def _table(entry: ViewEntry, table_id: int) -> StateTableDesc:
    for desc in entry.tables:
        if desc.table_id == table_id:
            return desc
    known = [d.table_id for d in entry.tables]
    raise DeclarationError(f"view {entry.name} has no state table {table_id}; it has {known}")


def _columns(schema: StateTableSchema, columns: Sequence[str] | None) -> list[str]:
    known = [column.name for column in schema.columns]
    if columns is None:
        return known
    columns = [as_declared(name, known) for name in columns]
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise DeclarationError(f"{schema.label} has no column {', '.join(unknown)}; it has {', '.join(known)}")
    if not columns:
        raise DeclarationError(f"no column of {schema.label} is asked for; it has {', '.join(known)}")
    return list(dict.fromkeys(columns))


def _values(schema: StateTableSchema, key: Key | None, prefix: Key | None) -> dict[str, Any]:
    if key is not None and prefix is not None:
        raise DeclarationError("either the whole key or a prefix of it is given, not both")
    given = prefix if key is None else key
    if given is None:
        return {}
    values = parse_key(given, schema) if isinstance(given, str) else key_of(given, schema)
    check_values(values, schema)
    names = [part.column for part in schema.storage_key]
    if key is not None and len(values) < len(names):
        raise DeclarationError(
            f"{len(values)} values for a key of {len(names)}: the key of {schema.label} is ({', '.join(names)}); "
            "give the first ones as a prefix"
        )
    return values


def _epoch(entry: ViewEntry, epoch: int | None) -> int:
    if entry.last_epoch is None:
        raise DeclarationError(f"view {entry.name} has no epoch yet; run it first")
    if epoch is not None and epoch not in entry.epochs:
        retained = ", ".join(map(str, entry.epochs))
        raise DeclarationError(f"epoch {epoch} of view {entry.name} is not retained; retained are {retained}")
    return entry.last_epoch if epoch is None else epoch


def _state_version(catalog: CatalogState, view: str, epoch: int) -> int | None:
    known = catalog.epochs.get(epoch)
    versions = None if known is None else known.versions.get(view)
    if versions is None:
        raise DeclarationError(f"the catalog does not know the state of view {view} at epoch {epoch}")
    return versions.state_version
