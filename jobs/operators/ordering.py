"""A total order of rows: the asked order first, then all columns, so that ties fall the same way every time."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from jobs.planner.nodes import SortKey, quoted


def by_order_then_all(order: Sequence[SortKey], names: Sequence[str], *, backwards: bool = False) -> list[Column]:
    """Sort columns for the order of a window or limit, made total by the remaining columns; or the opposite order."""
    columns = []
    for key in _total(order, names):
        column = F.col(quoted(key.column))
        nulls_last = key.nulls_last is not backwards
        if key.descending is not backwards:
            columns.append(column.desc_nulls_last() if nulls_last else column.desc_nulls_first())
        else:
            columns.append(column.asc_nulls_last() if nulls_last else column.asc_nulls_first())
    return columns


def not_after(order: Sequence[SortKey], names: Sequence[str], others: Sequence[str]) -> str:
    """SQL: whether a row sorts before another one, or equals it, in the order of :func:`by_order_then_all`.

    Parameters
    ----------
    others : for each name, the column that the other row has it in.
    """
    other = dict(zip(names, others, strict=True))
    # Flat, where AND within OR within AND would be as deep as there are columns.
    decided = []
    for key in _total(order, names):
        ours, theirs = quoted(key.column), quoted(other[key.column])
        first, second = (theirs, ours) if key.nulls_last else (ours, theirs)
        before = f"({first} IS NULL AND {second} IS NOT NULL) OR {ours} {'>' if key.descending else '<'} {theirs}"
        decided.append(f"WHEN {before} THEN true WHEN NOT {ours} <=> {theirs} THEN false")
    return f"CASE {' '.join(decided)} ELSE true END"


def _total(order: Sequence[SortKey], names: Sequence[str]) -> list[SortKey]:
    taken = {key.column for key in order}
    return [*order, *(SortKey(name) for name in names if name not in taken)]
