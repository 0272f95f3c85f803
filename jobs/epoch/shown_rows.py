"""Some rows as texts, for people: what a failed check shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.state_lib.sql_text import quoted

#: How many rows are shown of those that fail.
SHOWN_ROWS: Final = 5
#: The values of a row as Spark writes them; ``None`` is NULL.
Cells: TypeAlias = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class ShownRows:
    """Rows with the names of their columns."""

    columns: tuple[str, ...] = ()
    rows: tuple[Cells, ...] = ()


NO_ROWS: Final = ShownRows()


def as_texts(frame: DataFrame, columns: Sequence[str]) -> list[Column]:
    """Columns of a frame cast to texts."""
    return [_text(F.col(quoted(name)), frame.schema[name].dataType) for name in columns]


def _text(value: Column, data_type: T.DataType) -> Column:
    if isinstance(data_type, T.BinaryType):
        return F.concat(F.lit("0x"), F.hex(value))
    return value.cast("string")
