"""A total order of rows, so that ties fall the same way every time.

The asked order first, then all columns.

Maps have no order. Rows that have no key have the entries of their maps in columns besides (:mod:`.jobs.planner.map_keys`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from relstate_dagster.jobs.plan.nodes import Field, SortKey
from relstate_dagster.state_lib.sql_text import quoted


def by_order_then_all(order: Sequence[SortKey], schema: Sequence[Field], *, backwards: bool = False) -> list[Column]:
    """Sort columns of a window or limit, made total by the remaining columns.

    Or the opposite order.
    """
    return by_order(_total(order, schema), backwards=backwards)


def by_order(order: Sequence[SortKey], *, backwards: bool = False) -> list[Column]:
    """Sort columns of some keys, or the opposite order."""
    columns = []
    for key in order:
        column = F.col(quoted(key.column))
        nulls_last = key.nulls_last is not backwards
        if key.descending is not backwards:
            columns.append(column.desc_nulls_last() if nulls_last else column.desc_nulls_first())
        else:
            columns.append(column.asc_nulls_last() if nulls_last else column.asc_nulls_first())
    return columns


def not_after(order: Sequence[SortKey], schema: Sequence[Field], others: Sequence[str]) -> str:
    """Whether a row sorts before another one or equals it, as SQL.

    In the order of :func:`by_order_then_all`.

    Parameters
    ----------
    others : for each column, the one that the other row has it in.
    """
    other = dict(zip((f.name for f in schema), others, strict=True))
    # Flat, where AND within OR within AND would be as deep as there are columns.
    decided = []
    for key in _total(order, schema):
        ours, theirs = quoted(key.column), quoted(other[key.column])
        first, second = (theirs, ours) if key.nulls_last else (ours, theirs)
        before = f"({first} IS NULL AND {second} IS NOT NULL) OR {ours} {'>' if key.descending else '<'} {theirs}"
        decided.append(f"WHEN {before} THEN true WHEN NOT {ours} <=> {theirs} THEN false")
    return f"CASE {' '.join(decided)} ELSE true END"


def _total(order: Sequence[SortKey], schema: Sequence[Field]) -> list[SortKey]:
    sorted_columns = {key.column for key in order}
    return [*order, *(SortKey(f.name) for f in schema if f.name not in sorted_columns and not f.type.has_maps)]
