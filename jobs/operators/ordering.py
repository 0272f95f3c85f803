"""A total order of rows: the asked order first, then all columns, so that ties fall the same way every time."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from jobs.planner.nodes import SortKey, quoted


def by_order_then_all(order: Sequence[SortKey], names: Sequence[str]) -> list[Column]:
    """Sort columns for the order of a window or limit, made total by the remaining columns."""
    columns = []
    for key in order:
        column = F.col(quoted(key.column))
        if key.descending:
            columns.append(column.desc_nulls_last() if key.nulls_last else column.desc_nulls_first())
        else:
            columns.append(column.asc_nulls_last() if key.nulls_last else column.asc_nulls_first())
    taken = {key.column for key in order}
    return [*columns, *(F.col(quoted(name)).asc() for name in names if name not in taken)]
