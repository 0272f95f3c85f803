r"""Byte layout of an encoded row, for Spark expressions and Python twin.

A row is its parts one after another, so the encoding of the first *k* columns is a byte prefix of the whole. A part is
one marker byte and a payload that is of fixed width or ends itself, so no part is a prefix of a different one:

=============================  ==================  ==================================================================
type                           marker              payload
=============================  ==================  ==================================================================
NULL                           00 first, FF last   none
tinyint, smallint, int, date   01                  1, 2, 4, 4 bytes, big-endian, plus half the range
bigint, timestamp(_ntz),       01 below 0,         8 bytes two's complement, top bit set (the marker holds the sign:
day-time interval, decimal     02 otherwise        ``hex(x | MIN)`` always has 16 digits, so no padding is needed)
up to 18 digits
decimal above 18 digits        01 below 0,         the unscaled digits, zero-padded, one per 4 bits; below 0 each
                               02 otherwise        digit is replaced by 9 minus it
float, double                  as int, bigint      the order-preserving bits: IEEE 754 bits, all inverted below 0;
                                                   -0.0 is 0.0, and the one NaN sorts last
boolean                        01                  00 or 01
string, char, varchar,         01                  the bytes with 00 escaped as 00 01, then 00 00
binary
struct                         01                  its fields, ascending, NULLs first
array                          01                  for each element 01 and the element (ascending, NULLs first);
                                                   then 00
year-month interval            01                  as int (months)
=============================  ==================  ==================================================================

Descending columns: integers are encoded as ``-1 - x``; everything else has the bits of the marker's sign and payload
inverted. The marker of a NULL depends on its place alone, not on the direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import types as T

from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.row_encoding.ddl import parse_type
from relstate_dagster.state_lib.table_schema import KeyPart, StateColumn

NULL_FIRST: Final = 0x00
VALUE: Final = 0x01
#: A value whose sign moved into its marker, at or above zero.
VALUE_AT_OR_ABOVE_ZERO: Final = 0x02
NULL_LAST: Final = 0xFF

#: Unscaled decimals of up to 18 digits fit a BIGINT.
MAX_LONG_DIGITS: Final = 18

HEX_DIGITS: Final = "0123456789ABCDEF"
HEX_INVERTED: Final = HEX_DIGITS[::-1]

#: Bits of the integer types that are encoded with half the range added.
NARROW_BITS: Final[dict[type[T.DataType], int]] = {
    T.ByteType: 8,
    T.ShortType: 16,
    T.IntegerType: 32,
    T.DateType: 32,
    T.YearMonthIntervalType: 32,
}

#: Types whose value is a BIGINT to the encoding.
WIDE_TYPES: Final = (T.LongType, T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType)


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """An IEEE 754 binary format: bits in all, of the mantissa, and the exponent's bias."""

    bits: int
    mantissa_bits: int
    bias: int

    @property
    def infinity(self) -> int:
        """The bits of infinity."""
        return (2 * self.bias + 1) << self.mantissa_bits

    @property
    def nan(self) -> int:
        """The bits of the one NaN."""
        return self.infinity | (1 << (self.mantissa_bits - 1))


FLOAT: Final = FloatFormat(bits=32, mantissa_bits=23, bias=127)
DOUBLE: Final = FloatFormat(bits=64, mantissa_bits=52, bias=1023)


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """One column of an encoded row: its type and its order."""

    data_type: T.DataType
    descending: bool = False
    nulls_last: bool = False

    @property
    def null_marker(self) -> int:
        """The byte that stands for NULL."""
        return NULL_LAST if self.nulls_last else NULL_FIRST


def encoded_parts(columns: Sequence[StateColumn], key: Sequence[KeyPart]) -> tuple[EncodedPart, ...]:
    """The types and orders of a storage primary key, for :func:`encode_row` and :func:`decode_row`."""
    types = {column.name: column.data_type for column in columns}
    parts = tuple(EncodedPart(parse_type(types[p.column]), p.descending, p.nulls_last) for p in key)
    for part, place in zip(parts, key, strict=True):
        check_key_type(part.data_type, place.column)
    return parts


def check_key_type(data_type: T.DataType, column: str = "") -> None:
    """Refuse a type that has no order Spark groups by.

    Raises
    ------
    PlanError
        The type is, or contains, a map, a variant or a collated string.
    """
    where = f"column {column}: " if column else ""
    if isinstance(data_type, T.StructType):
        for field in data_type.fields:
            check_key_type(field.dataType, f"{column}.{field.name}" if column else field.name)
    elif isinstance(data_type, T.ArrayType):
        check_key_type(data_type.elementType, f"{column}[]" if column else "[]")
    elif isinstance(data_type, T.StringType) and data_type.collation != "UTF8_BINARY":
        raise PlanError(
            f"{where}a string with collation {data_type.collation} cannot be part of a storage primary key: one group "
            "has several spellings; group or join by `collation_key(…)` or by `lower(…)` of it"
        )
    elif isinstance(data_type, (T.MapType, T.VariantType)):
        raise PlanError(
            f"{where}type {data_type.simpleString()} has no order and cannot be part of a storage primary key; "
            "use a field of it, or for a map `array_sort(map_entries(…))`"
        )
    elif not _is_atomic(data_type):
        raise PlanError(f"{where}type {data_type.simpleString()} cannot be part of a storage primary key")


def _is_atomic(data_type: T.DataType) -> bool:
    atomic = (T.DecimalType, T.FloatType, T.DoubleType, T.BooleanType, T.StringType, T.BinaryType, T.NullType)
    text = (T.CharType, T.VarcharType)
    return type(data_type) in NARROW_BITS or isinstance(data_type, (*WIDE_TYPES, *atomic, *text))


def bcd_digits(decimal: T.DecimalType) -> int:
    """Digits of a wide decimal's payload: its precision, made even so that it fills bytes."""
    return decimal.precision + decimal.precision % 2
