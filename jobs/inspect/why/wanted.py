"""Wanted rows, by the values that tell them apart, and matching rows of frames.

A handful of them is asked for by literals, which Spark pushes down through the plan to the files of the sources. More of them,
and values that have no exact literal, are joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.state_lib.literals import literal
from relstate_dagster.state_lib.local_checkpoint import local_checkpoint

#: So many rows are asked for by literals: Spark plans a condition of many more for long, and files skip little by it.
MOST_LITERALS: Final = 16
#: Types of which a collected value gives the same literal again: not floating-point numbers, whose zeros and NaNs files
#: compare in other ways, and not TIMESTAMP, which is collected in the local time zone.
_EXACT: Final = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.DecimalType,
    T.DateType,
    T.TimestampNTZType,
    T.BinaryType,
)
_ASKED: Final = "__why_asked_"


@dataclass(frozen=True)
class Wanted:
    """Different rows, computed once.

    Parameters
    ----------
    few : the rows, where they are no more than :data:`MOST_LITERALS`.
    """

    frame: DataFrame
    few: tuple[Mapping[str, Any], ...] | None

    @classmethod
    def of(cls, frame: DataFrame) -> Wanted:
        """The different rows of a frame."""
        held = local_checkpoint(frame.distinct())
        rows = held.limit(MOST_LITERALS + 1).collect()
        return cls(held, tuple(row.asDict() for row in rows) if len(rows) <= MOST_LITERALS else None)

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return self.few is not None and not self.few

    def renamed(self, names: Mapping[str, str]) -> Wanted:
        """Some of the columns under other names, by the old ones."""
        frame = self.frame.select(*(F.col(old).alias(new) for old, new in names.items()))
        few = None if self.few is None else tuple({new: row[old] for old, new in names.items()} for row in self.few)
        return Wanted(frame, few)

    def where(self, flag: str, value: Any) -> Wanted:
        """The rows in which a column has a value that is not NULL, or NULL."""
        if self.few is None:
            return Wanted.of(self.frame.where(F.col(flag).eqNullSafe(F.lit(value))))
        kept = tuple(row for row in self.few if row[flag] == value)
        return Wanted(self.frame.where(F.col(flag).eqNullSafe(F.lit(value))), kept)


def same_rows(frame: DataFrame, columns: Sequence[str], wanted: Wanted, names: Sequence[str] | None = None) -> DataFrame:
    """Rows of a frame with a wanted row's values; NULL equals NULL.

    Parameters
    ----------
    columns : of the frame, as SQL texts.
    names : the columns of ``wanted`` that they are compared with; those of the same names by default.
    """
    theirs = list(names if names is not None else columns)
    types = [wanted.frame.schema[name].dataType for name in theirs]
    if wanted.few is not None and all(_is_exact(t) for t in types):
        matches = [
            reduce(Column.__and__, (_is(sql, row[name], t) for sql, name, t in zip(columns, theirs, types, strict=True)))
            for row in wanted.few
        ]
        return frame.where(reduce(Column.__or__, matches) if matches else F.lit(False))
    asked = wanted.frame.select(*(F.col(name).alias(f"{_ASKED}{n}") for n, name in enumerate(theirs))).distinct()
    equal = (F.expr(sql).eqNullSafe(F.col(f"{_ASKED}{n}")) for n, sql in enumerate(columns))
    return frame.join(asked, reduce(Column.__and__, equal), "left_semi")


def _is_exact(data_type: T.DataType) -> bool:
    if type(data_type) is T.StringType:
        return data_type.collation == "UTF8_BINARY"
    return isinstance(data_type, _EXACT)


def _is(sql: str, value: Any, data_type: T.DataType) -> Column:
    found = literal(value, data_type.simpleString())
    assert found is not None
    return F.expr(sql).eqNullSafe(found)
