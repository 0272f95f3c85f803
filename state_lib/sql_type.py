"""Facts about SQL types, parsed once from their DDL text.

Plans store the text. Whoever decides by a type asks its parsed form, and never looks for words in the text: a field of a struct
may be called anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pyspark.sql import types as T

from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.row_encoding.ddl import parse_type, parts_of

_WIDTHS: Final[dict[type[T.DataType], int]] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_UNITS: Final[dict[type[T.DataType], str]] = {
    T.YearMonthIntervalType: "'1' MONTH",
    T.DayTimeIntervalType: "'0.000001' SECOND",
}


@dataclass(frozen=True, slots=True)
class SqlType:
    """Facts about a type.

    Parameters
    ----------
    ddl : its text.
    name : of the type without parameters, as Spark writes it: ``bigint``, ``decimal``, ``struct``, ``interval``.
    bits : of a whole number; else ``None``.
    decimal : precision and scale of a decimal; else ``None``.
    interval_unit : what an interval counts, as an INTERVAL literal of one; ``None`` for other types and calendar intervals.
    has_floats, has_maps, has_variants, has_collations : whether it is such a type or has one within.
    """

    ddl: str
    name: str
    bits: int | None = None
    decimal: tuple[int, int] | None = None
    interval_unit: str | None = None
    has_floats: bool = False
    has_maps: bool = False
    has_variants: bool = False
    has_collations: bool = False

    @property
    def is_nested(self) -> bool:
        """Whether its values have parts."""
        return self.name in ("struct", "array", "map")

    @property
    def is_exact(self) -> bool:
        """Whether sums of it are exact in any order: whole numbers and decimals."""
        return self.bits is not None or self.decimal is not None


@lru_cache(maxsize=4096)
def sql_type(ddl: str) -> SqlType:
    """Facts about the type of some DDL text.

    A type that no state can hold, as a calendar interval, has a name alone.

    Raises
    ------
    PlanError : the text has a map, and is not a type.
    """
    try:
        parsed = parse_type(ddl)
    except PlanError:
        if "map<" in ddl.lower():
            raise
        return SqlType(ddl, ddl.lower().partition("<")[0].split("(")[0].split(" ")[0])
    parts = list(parts_of(parsed))
    return SqlType(
        ddl,
        parsed.simpleString().partition("<")[0].split("(")[0].split(" ")[0],
        bits=_WIDTHS.get(type(parsed)),
        decimal=(parsed.precision, parsed.scale) if isinstance(parsed, T.DecimalType) else None,
        interval_unit=_UNITS.get(type(parsed)),
        has_floats=any(isinstance(part, (T.FloatType, T.DoubleType)) for part in parts),
        has_maps=any(isinstance(part, T.MapType) for part in parts),
        has_variants=any(isinstance(part, T.VariantType) for part in parts),
        has_collations=any(isinstance(part, T.StringType) and part.collation != "UTF8_BINARY" for part in parts),
    )
