"""Lookup of the same keys in several state tables, in one pass."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.state_lib.constants import EPOCH, EPOCH_COLUMN, STATE_WEIGHT, TABLE_ID, WEIGHT_COLUMN
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.lazy_frame import select
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.storage_table import StorageTable

_LOOKUP = "_lookup_"


def lookup_several(
    tables: Sequence[StorageTable],
    keys: DataFrame | None,
    key_columns: Sequence[str],
    *,
    on: Sequence[tuple[str, str]] | None = None,
    hint: str | None = "broadcast",
    lookup_keys: LookupKeys | None = None,
) -> DataFrame:
    """Unmerged rows of several tables whose first key columns equal a key.

    Parameters
    ----------
    tables : tables of one store at one version, whose first columns are ``key_columns``: those then lie in the same slots.
    keys : what to look up; NULL equals NULL. ``None`` for all rows; ignored where there are no key columns.
    on : pairs of a key column and the column of ``keys`` it equals; by default all key columns, under their own names.
    hint : how Spark is to join the keys; see :meth:`StorageTable.lookup`.
    lookup_keys : the values of one of the key columns, where they are known.

    Returns
    -------
    DataFrame
        The key columns, and for the table at position *n* ``_epoch_n`` and ``_state_n`` (a struct of its other columns
        and ``_state_weight``); both are NULL in the rows of other tables.

    Raises
    ------
    StateError
        The tables do not start with the key columns.
    """
    first = tables[0]
    for table in tables:
        if table.column_names[: len(key_columns)] != list(key_columns):
            raise StateError(f"{table.place()}: its columns do not start with {list(key_columns)}")
    rows = first.stored_of([table.desc.table_id for table in tables], lookup_keys)
    if key_columns and keys is not None:
        pairs = [(name, name) for name in key_columns] if on is None else on
        wanted = select(keys, [f"{quoted(theirs)} AS {_LOOKUP}{n}" for n, (_, theirs) in enumerate(pairs)])
        condition = " AND ".join(f"{first.slots.of(ours).value} <=> {_LOOKUP}{n}" for n, (ours, _) in enumerate(pairs))
        rows = rows.join(wanted.hint(hint) if hint else wanted, F.expr(condition), "left_semi")
    columns = [first.slots.of(name).read() for name in key_columns]
    for n, table in enumerate(tables):
        mine = f"{TABLE_ID} = {table.desc.table_id}"
        others = [table.slots.of(name).read() for name in table.column_names if name not in key_columns]
        state = ", ".join([*others, f"{WEIGHT_COLUMN} AS {STATE_WEIGHT}"])
        columns.append(f"CASE WHEN {mine} THEN {EPOCH_COLUMN} END AS {EPOCH}_{n}")
        columns.append(f"CASE WHEN {mine} THEN struct({state}) END AS _state_{n}")
    return select(rows, columns)
