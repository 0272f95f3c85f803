"""Some rows as texts: of failed checks, and of an epoch's changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.state_lib.sql_text import quoted

#: How many rows are shown of those that fail.
SHOWN_ROWS: Final = 5
#: Letters that are kept of a changed value: reports are sent around.
_LONGEST: Final = 200
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


def changed_rows(changes: pa.Table, sign: str) -> ShownRows:
    """Some rows of a change set, with ``+`` or ``−`` in front.

    One column holds the sign. Longer texts are cut.
    """
    some = changes.slice(0, SHOWN_ROWS)
    if not some.num_rows:
        return NO_ROWS
    names = [name for name in some.column_names if name != sign]
    signs = ["+" if value > 0 else "−" for value in some[sign].to_pylist()]
    return ShownRows(("±", *names), tuple(zip(signs, *(_shown(some[name]) for name in names), strict=True)))


def _shown(column: pa.ChunkedArray) -> list[str | None]:
    if pa.types.is_binary(column.type):
        return [None if value is None else f"0x{value.hex()}"[:_LONGEST] for value in column.to_pylist()]
    try:
        written = column.cast(pa.string())
        if pa.types.is_timestamp(column.type):  # as Spark writes them: Arrow has all six digits, and a Z
            written = pc.replace_substring_regex(written, r"(?:\.0+|(\.\d*[1-9])0*)?Z?$", r"\1")
        texts = written.to_pylist()
    except pa.ArrowException:
        try:
            texts = [None if value is None else str(value) for value in column.to_pylist()]
        except (ValueError, OverflowError):  # a time within a struct that Python does not have
            texts = ["…"] * len(column)
    return [None if text is None else text[:_LONGEST] for text in texts]
