"""Row encoding by Spark in the JVM, without Python per row.

Where sessions have it, one compiled function encodes a row (:mod:`.jobs.engine.key_function`). Elsewhere, as with Spark
Connect, it is written in Spark's own expressions.

Spark's SQL has no cast of a number to binary under ANSI, so numbers go through hexadecimal text. Each is brought to a form
whose hex text has a fixed length by itself (padding costs twice the rest). Neighbouring parts are concatenated as text, and
one ``unhex`` makes bytes of them. Strings in ascending order need no hex: Spark's strings are UTF-8 bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.utils import is_remote

from relstate_dagster.state_lib.row_encoding.ddl import parse_type, to_ddl, unique_struct
from relstate_dagster.state_lib.row_encoding.layout import (
    DOUBLE,
    FLOAT,
    HEX_DIGITS,
    HEX_INVERTED,
    MAX_LONG_DIGITS,
    NARROW_BITS,
    WIDE_TYPES,
    FloatFormat,
    bcd_digits,
    check_key_type,
)
from relstate_dagster.state_lib.sql_text import quoted, text_literal
from relstate_dagster.state_lib.table_schema import KeyPart, StateColumn

#: Takes a struct of the key's columns, its type as JSON, and for each column ``a`` or ``d`` and NULLs ``f`` or ``l``.
KEY_FUNCTION: Final = "relstate_encode_key"
_MIN_LONG: Final = -(2**63)
_MICROS_PER_SECOND: Final = 1_000_000
_MICROS_PER_MINUTE: Final = 60 * _MICROS_PER_SECOND
_MICROS_PER_HOUR: Final = 60 * _MICROS_PER_MINUTE
_MICROS_PER_DAY: Final = 24 * _MICROS_PER_HOUR
#: Up to this scale Spark writes a decimal without an exponent, with ANSI off as well.
_MAX_PLAIN_SCALE: Final = 6

#: A part, and whether its column is hexadecimal text (else: UTF-8 text that stands for its bytes).
_Piece = tuple[Column, bool]


class _Known:
    """Whether sessions of this process have the function."""

    function = False


def use_key_function(*, use: bool = True) -> None:
    """Encode keys by the function, which all sessions of this process have from now on."""
    _Known.function = use


def encode_key(parts: Sequence[tuple[Column, T.DataType, bool, bool]]) -> Column:
    """The memcomparable encoding of a row.

    Parameters
    ----------
    parts : for each column of the key: the column, its type, descending, NULLs last.

    Returns
    -------
    Column
        BINARY, never NULL. Its bytes compare as the rows compare; the encoding of the first *k* parts is a prefix.

    Raises
    ------
    PlanError
        A type has no order (map, variant), or is a string with a collation.
    """
    for _, data_type, _, _ in parts:
        check_key_type(data_type)
    if parts and _Known.function and not is_remote():
        return _by_function(parts)
    pieces = [_part(column, data_type, descending, last) for column, data_type, descending, last in parts]
    runs: list[Column] = []
    for is_hex, group in itertools.groupby(pieces, key=lambda piece: piece[1]):
        columns = [piece[0] for piece in group]
        text = columns[0] if len(columns) == 1 else F.concat(*columns)
        runs.append(F.unhex(text) if is_hex else text.cast("binary"))
    if not runs:
        return F.lit(b"")
    return runs[0] if len(runs) == 1 else F.concat(*runs)


def _by_function(parts: Sequence[tuple[Column, T.DataType, bool, bool]]) -> Column:
    row = F.struct(*(column.alias(f"_{n}") for n, (column, *_) in enumerate(parts)))
    return F.call_function(KEY_FUNCTION, row, *map(F.lit, _types_and_orders([part[1:] for part in parts])))


def _types_and_orders(parts: Sequence[tuple[T.DataType, bool, bool]]) -> tuple[str, str]:
    # As values have them: without the length of a VARCHAR.
    types = [T.StructField(f"_{n}", parse_type(to_ddl(data_type))) for n, (data_type, *_) in enumerate(parts)]
    orders = "".join(("d" if descending else "a") + ("l" if last else "f") for _, descending, last in parts)
    return T.StructType(types).json(), orders


def storage_key_sql(columns: Sequence[StateColumn], key: Sequence[KeyPart], column: Callable[[str], str]) -> str | None:
    """As :func:`encode_storage_key`, in SQL; ``None`` where sessions do not have the function.

    Parameters
    ----------
    column : how a column name is written in SQL.
    """
    if not _Known.function or is_remote():
        return None
    if not key:
        return "X''"
    types = {c.name: parse_type(c.data_type) for c in columns}
    for part in key:
        check_key_type(types[part.column])
    texts = _types_and_orders([(types[p.column], p.descending, p.nulls_last) for p in key])
    row = ", ".join(f"{column(p.column)} AS _{n}" for n, p in enumerate(key))
    return f"{KEY_FUNCTION}(struct({row}), {', '.join(map(text_literal, texts))})"


def encode_storage_key(
    columns: Sequence[StateColumn],
    key: Sequence[KeyPart],
    column: Callable[[str], Column] = lambda name: F.col(quoted(name)),
) -> Column:
    """Encoded storage primary key of rows, from column names and DDL types.

    Parameters
    ----------
    columns : the columns of the state table.
    key : its storage primary key, or the first parts of it for a prefix.
    column : how a column name becomes a column of the frame at hand; by default the column of that name.
    """
    types = {c.name: c.data_type for c in columns}
    return encode_key([(column(p.column), parse_type(types[p.column]), p.descending, p.nulls_last) for p in key])


def encode_columns(
    columns: Sequence[StateColumn],
    names: Sequence[str],
    column: Callable[[str], Column] = lambda name: F.col(quoted(name)),
) -> Column:
    """Encoding of columns in default order, as for distribution keys.

    Ascending, NULLs first.
    """
    return encode_storage_key(columns, [KeyPart(name) for name in names], column)


def _part(column: Column, data_type: T.DataType, descending: bool, nulls_last: bool) -> _Piece:
    """One part with its marker, NULLs included."""
    null_hex, null_text = ("FF", "") if nulls_last else ("00", "\x00")
    is_text = isinstance(data_type, (T.StringType, T.CharType, T.VarcharType, T.BinaryType))
    # 0xFF is no UTF-8, so a literal of it cannot stand in text: NULLs last take the hex way.
    if is_text and not descending and not nulls_last:
        return F.coalesce(F.concat(F.lit("\x01"), _terminated(column)), F.lit(null_text)), False
    return _nullable_hex(column, data_type, descending, null_hex), True


def _nullable_hex(column: Column, data_type: T.DataType, descending: bool = False, null_hex: str = "00") -> Column:
    if isinstance(data_type, T.NullType):
        return F.lit(null_hex)
    value = _value_hex(column, data_type, descending)
    if isinstance(data_type, T.StructType):
        # The fields' own encodings are never NULL, so the struct's NULL has to be asked for.
        return F.when(column.isNull(), F.lit(null_hex)).otherwise(value)
    return F.coalesce(value, F.lit(null_hex))


def _value_hex(column: Column, data_type: T.DataType, descending: bool) -> Column:
    """Marker and payload of a value as hex text; NULL for NULL (structs apart)."""
    if type(data_type) in NARROW_BITS:
        return _narrow_hex(_narrow_value(column, data_type), NARROW_BITS[type(data_type)], descending)
    if isinstance(data_type, WIDE_TYPES):
        return _wide_hex(_wide_value(column, data_type), descending)
    if isinstance(data_type, T.DecimalType):
        return _decimal_hex(column, data_type, descending)
    if isinstance(data_type, T.FloatType):
        return _narrow_hex(_ordered_bits(column.cast("double"), FLOAT), FLOAT.bits, descending)
    if isinstance(data_type, T.DoubleType):
        return _wide_hex(_ordered_bits(column, DOUBLE), descending)
    payload = _payload_hex(column, data_type)
    return F.concat(F.lit("01"), _inverted(payload) if descending else payload)


def _payload_hex(column: Column, data_type: T.DataType) -> Column:
    if isinstance(data_type, T.BooleanType):
        return F.when(column, "01").when(~column, "00")
    if isinstance(data_type, T.StructType):
        fields = [_nullable_hex(value, field_type) for value, field_type in _fields(column, data_type)]
        return F.concat(*fields) if fields else F.lit("")
    if isinstance(data_type, T.ArrayType):
        element = data_type.elementType
        elements = F.transform(column, lambda x: F.concat(F.lit("01"), _nullable_hex(x, element)))
        return F.concat(F.array_join(elements, ""), F.lit("00"))
    return F.hex(_terminated(column))


def _fields(column: Column, data_type: T.StructType) -> Iterator[tuple[Column, T.DataType]]:
    """Fields and types of a struct.

    Those of ``struct(k, k)`` cannot be asked for by their names.
    """
    unique = unique_struct(data_type)
    named = column if unique == data_type else column.cast(unique)
    for field in unique.fields:
        yield named.getField(field.name), field.dataType


def _terminated(column: Column) -> Column:
    """Text or bytes with 00 escaped and the end marked.

    A cast of binary to string keeps every byte.
    """
    return F.concat(F.replace(column.cast("string"), F.lit("\x00"), F.lit("\x00\x01")), F.lit("\x00\x00"))


def _inverted(hex_text: Column) -> Column:
    return F.translate(hex_text, HEX_DIGITS, HEX_INVERTED)


def _narrow_value(column: Column, data_type: T.DataType) -> Column:
    if isinstance(data_type, T.DateType):
        return F.unix_date(column).cast("bigint")
    if isinstance(data_type, T.YearMonthIntervalType):
        return interval_as_integer(column, data_type)
    return column.cast("bigint")


def interval_as_integer(column: Column, data_type: T.DataType) -> Column:
    """A year-month interval as months, a day-time interval as microseconds; BIGINT."""
    if isinstance(data_type, T.YearMonthIntervalType):
        months = column.cast("interval year to month")
        return F.extract(F.lit("YEAR"), months).cast("bigint") * 12 + F.extract(F.lit("MONTH"), months)
    interval = column.cast("interval day to second")
    days = F.extract(F.lit("DAY"), interval).cast("bigint")
    hours = F.extract(F.lit("HOUR"), interval).cast("bigint")
    return days * _MICROS_PER_DAY + hours * _MICROS_PER_HOUR + _minute_micros(interval)


def _narrow_hex(value: Column, bits: int, descending: bool) -> Column:
    # One bit above the range makes the hex text of every value equally long, and is the marker's 1.
    ordered = F.bitwise_not(value) if descending else value
    return F.concat(F.lit("0"), F.hex(ordered + F.lit((1 << (bits - 1)) + (1 << bits))))


def _wide_value(column: Column, data_type: T.DataType) -> Column:
    if isinstance(data_type, T.TimestampType):
        return F.unix_micros(column)
    if isinstance(data_type, T.TimestampNTZType):
        # Through fields: a cast to TIMESTAMP would read the session's time zone and lose hours where clocks go back.
        days = F.unix_date(column.cast("date")).cast("bigint")
        return days * _MICROS_PER_DAY + F.hour(column) * F.lit(_MICROS_PER_HOUR) + _minute_micros(column)
    if isinstance(data_type, T.DayTimeIntervalType):
        return interval_as_integer(column, data_type)
    return column


def _minute_micros(column: Column) -> Column:
    minutes = F.extract(F.lit("MINUTE"), column).cast("bigint")
    seconds = F.extract(F.lit("SECOND"), column)
    return minutes * _MICROS_PER_MINUTE + (seconds * _MICROS_PER_SECOND).cast("bigint")


def _wide_hex(value: Column, descending: bool) -> Column:
    ordered = F.bitwise_not(value) if descending else value
    sign = F.when(ordered < 0, "01").otherwise("02")
    return F.concat(sign, F.hex(ordered.bitwiseOR(F.lit(_MIN_LONG))))


def _decimal_hex(column: Column, data_type: T.DecimalType, descending: bool) -> Column:
    precision, scale = data_type.precision, data_type.scale
    if precision <= MAX_LONG_DIGITS:
        # decimal(p,s) × decimal(s+1,0) is decimal(p+s+2, s): at most 38 digits, so the product is exact.
        factor = F.lit(10**scale).cast(T.DecimalType(scale + 1, 0))
        return _wide_hex((column * factor if scale else column).cast("bigint"), descending)
    # The sign is taken off the text: Spark's abs of a decimal rounds to 34 digits.
    if scale <= _MAX_PLAIN_SCALE:
        text = column.cast("string")
    else:
        # The digit before the point may have no place in the payload: decimal(38,38) has 38 digits after it.
        text = F.call_function("format_number", column, F.lit("0" * (precision > scale) + "." + "0" * scale))
    digits = F.translate(text, "-.", "")
    padded = F.lpad(digits, bcd_digits(data_type), "0")
    inverted = F.translate(padded, "0123456789", "9876543210")
    # Of the column's own type: compared with an INT, both sides would lose digits (-1e-38 would not be below 0).
    negative = column < F.lit(0).cast(data_type)
    if descending:
        return F.when(negative, F.concat(F.lit("02"), padded)).otherwise(F.concat(F.lit("01"), inverted))
    return F.when(negative, F.concat(F.lit("01"), inverted)).otherwise(F.concat(F.lit("02"), padded))


def _ordered_bits(value: Column, layout: FloatFormat) -> Column:
    """The IEEE 754 bits of a double as an order-preserving BIGINT.

    Spark's SQL cannot read the bits of a double, and ``reflect`` counts as non-deterministic. But scaling by a power
    of two is exact, and Spark's ``pow(2.0, n)`` is exact for every exponent a double has, so exponent and mantissa
    come by arithmetic. ``log2`` may be one off next to a power of two; the scaled value shows which way.
    """
    lowest = 1 - layout.bias
    magnitude = F.abs(value)
    exponent = F.least(F.greatest(F.floor(F.log2(magnitude)), F.lit(lowest)), F.lit(layout.bias)).cast("bigint")
    scaled = magnitude * F.pow(F.lit(2.0), -exponent)

    def bits(correction: int) -> Column:
        mantissa = (scaled * F.lit(2.0 ** (layout.mantissa_bits - correction))).cast("bigint")
        return F.shiftleft(exponent + F.lit(layout.bias - 1 + correction), layout.mantissa_bits) + mantissa

    finite = (
        F.when(scaled >= 2, bits(1))
        # Below the lowest exponent the number is subnormal: the exponent stays.
        .when((scaled < 1) & (exponent > lowest), bits(-1))
        .otherwise(bits(0))
    )
    unsigned = (
        F.when(F.isnan(value), F.lit(layout.nan))
        .when(magnitude == float("inf"), F.lit(layout.infinity))
        .when(magnitude == 0, F.lit(0))
        .otherwise(finite)
        .cast("bigint")
    )
    return F.when(value < 0, F.bitwise_not(unsigned)).otherwise(unsigned)
