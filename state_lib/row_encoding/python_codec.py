"""The row encoding in pure Python: for single rows, and to read keys back.

Values are those that PySpark collects: ``int``, ``float``, ``Decimal``, ``bool``, ``str``, ``bytes``, ``date``,
``datetime``, ``timedelta``, tuples or ``Row`` for structs, lists for arrays. A year-month interval is an ``int`` of
months (PySpark has no type for it). A TIMESTAMP decodes to an aware UTC ``datetime``; a naive one is read in the local
time zone, as PySpark reads it.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

from pyspark.sql import types as T

from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.row_encoding.layout import (
    DOUBLE,
    FLOAT,
    MAX_LONG_DIGITS,
    NARROW_BITS,
    NULL_FIRST,
    NULL_LAST,
    VALUE,
    VALUE_AT_OR_ABOVE_ZERO,
    WIDE_TYPES,
    EncodedPart,
    FloatFormat,
    bcd_digits,
    check_key_type,
)

_EPOCH_DATE: Final = dt.date(1970, 1, 1)
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_EPOCH_NAIVE: Final = dt.datetime(1970, 1, 1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_MIN_LONG: Final = -(2**63)
_EXACT: Final = Context(prec=60)
_TEXT: Final = (T.StringType, T.CharType, T.VarcharType)


def encode_row(values: Sequence[Any], parts: Sequence[EncodedPart]) -> bytes:
    """Encode a row, or its first columns where fewer values than parts are given.

    Raises
    ------
    StateError
        There are more values than parts, or a value does not fit its type.
    """
    if len(values) > len(parts):
        raise StateError(f"{len(values)} values for a key of {len(parts)} columns: {values!r}")
    return b"".join(_encode_part(value, part) for value, part in zip(values, parts, strict=False))


def decode_row(encoded: bytes, parts: Sequence[EncodedPart]) -> tuple[Any, ...]:
    """Read an encoded row back; the inverse of :func:`encode_row` up to normalisation (−0.0 becomes 0.0).

    Raises
    ------
    StateError
        The bytes are not an encoding of these parts.
    """
    reader = _Reader(bytes(encoded))
    try:
        values = tuple(_decode_part(reader, part) for part in parts)
    except (IndexError, ValueError, OverflowError, struct.error) as error:
        raise StateError(f"key {encoded.hex()} is not an encoding of {_types(parts)}: {error}") from error
    if reader.at != len(encoded):
        raise StateError(f"key {encoded.hex()} has {len(encoded) - reader.at} bytes more than {_types(parts)}")
    return values


def normalise(value: Any, data_type: T.DataType) -> Any:
    """Representative of all values that Spark groups with it.

    −0.0 becomes 0.0, a TIMESTAMP gets zone UTC.
    """
    part = EncodedPart(data_type)
    return decode_row(encode_row([value], [part]), [part])[0]


def _types(parts: Sequence[EncodedPart]) -> str:
    return "(" + ", ".join(part.data_type.simpleString() for part in parts) + ")"


class _Reader:
    """A cursor over encoded bytes."""

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded
        self.at = 0

    def byte(self) -> int:
        value = self._encoded[self.at]
        self.at += 1
        return value

    def take(self, length: int) -> bytes:
        piece = self._encoded[self.at : self.at + length]
        if len(piece) != length:
            raise IndexError("it ends within a value")
        self.at += length
        return piece


def _inverted(payload: bytes) -> bytes:
    return bytes(byte ^ 0xFF for byte in payload)


def _encode_part(value: Any, part: EncodedPart) -> bytes:
    if value is None:
        return bytes([part.null_marker])
    try:
        return _encode_value(value, part.data_type, part.descending)
    except (TypeError, ValueError, AttributeError, ArithmeticError, struct.error) as error:
        raise StateError(f"{value!r} is not a {part.data_type.simpleString()}: {error}") from error


def _decode_part(reader: _Reader, part: EncodedPart) -> Any:
    marker = reader.byte()
    if marker in (NULL_FIRST, NULL_LAST):
        if marker != part.null_marker:
            raise ValueError(f"NULL is marked {marker:02x}, of the other order")
        return None
    return _decode_value(reader, marker, part.data_type, part.descending)


def _encode_value(value: Any, data_type: T.DataType, descending: bool) -> bytes:
    if isinstance(data_type, (T.StructType, T.ArrayType)) or not _is_integral(data_type):
        check_key_type(data_type)
        if isinstance(data_type, T.DecimalType):
            return _encode_wide_decimal(value, data_type, descending)
        payload = _payload(value, data_type)
        return bytes([VALUE]) + (_inverted(payload) if descending else payload)
    number = _to_integer(value, data_type)
    ordered = ~number if descending else number
    bits = _bits(data_type)
    if not -(1 << (bits - 1)) <= ordered < 1 << (bits - 1):
        raise ValueError("out of range")
    if bits == DOUBLE.bits:
        marker = VALUE if ordered < 0 else VALUE_AT_OR_ABOVE_ZERO
        return bytes([marker]) + struct.pack(">Q", (ordered | _MIN_LONG) & (2**64 - 1))
    return bytes([VALUE]) + (ordered + (1 << (bits - 1))).to_bytes(bits // 8, "big")


def _decode_value(reader: _Reader, marker: int, data_type: T.DataType, descending: bool) -> Any:
    if _is_integral(data_type):
        bits = _bits(data_type)
        if bits == DOUBLE.bits:
            ordered = int.from_bytes(reader.take(8), "big", signed=True)
            ordered = ordered & ~_MIN_LONG if marker == VALUE_AT_OR_ABOVE_ZERO else ordered
        else:
            ordered = int.from_bytes(reader.take(bits // 8), "big") - (1 << (bits - 1))
        return _from_integer(~ordered if descending else ordered, data_type)
    if isinstance(data_type, T.DecimalType):
        return _decode_wide_decimal(reader, marker, data_type, descending)
    return _decode_payload(_InvertedReader(reader) if descending else reader, data_type)


def _is_integral(data_type: T.DataType) -> bool:
    """Whether the encoding sees the type as an integer."""
    if isinstance(data_type, T.DecimalType):
        return data_type.precision <= MAX_LONG_DIGITS
    return type(data_type) in NARROW_BITS or isinstance(data_type, (*WIDE_TYPES, T.FloatType, T.DoubleType))


def _bits(data_type: T.DataType) -> int:
    return FLOAT.bits if isinstance(data_type, T.FloatType) else NARROW_BITS.get(type(data_type), DOUBLE.bits)


def _to_integer(value: Any, data_type: T.DataType) -> int:
    writers: Mapping[type[T.DataType], Callable[[Any], int]] = {
        T.DateType: _days,
        T.TimestampType: lambda v: int((v.astimezone(dt.timezone.utc) - _EPOCH_UTC) // _MICROSECOND),
        T.TimestampNTZType: lambda v: int((v - _EPOCH_NAIVE) // _MICROSECOND),
        T.DayTimeIntervalType: lambda v: int(v // _MICROSECOND),
        T.FloatType: lambda v: _float_bits(v, FLOAT),
        T.DoubleType: lambda v: _float_bits(v, DOUBLE),
    }
    if isinstance(data_type, T.DecimalType):
        return _unscaled(value, data_type)
    return writers.get(type(data_type), _whole_number)(value)


def _days(value: dt.date) -> int:
    if isinstance(value, dt.datetime):
        raise TypeError("a datetime is not a date")
    return (value - _EPOCH_DATE).days


def _whole_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("an int is needed")
    return value


def _from_integer(number: int, data_type: T.DataType) -> Any:
    readers: Mapping[type[T.DataType], Callable[[int], Any]] = {
        T.DateType: lambda n: _EPOCH_DATE + dt.timedelta(days=n),
        T.TimestampType: lambda n: _EPOCH_UTC + dt.timedelta(microseconds=n),
        T.TimestampNTZType: lambda n: _EPOCH_NAIVE + dt.timedelta(microseconds=n),
        T.DayTimeIntervalType: lambda n: dt.timedelta(microseconds=n),
        T.FloatType: lambda n: _float_of_bits(n, FLOAT),
        T.DoubleType: lambda n: _float_of_bits(n, DOUBLE),
    }
    if isinstance(data_type, T.DecimalType):
        return Decimal(number).scaleb(-data_type.scale, _EXACT)
    reader = readers.get(type(data_type))
    return reader(number) if reader else number


def _float_bits(value: float, layout: FloatFormat) -> int:
    number = float(value)
    if math.isnan(number):
        return layout.nan
    if number == 0.0:
        return 0
    code = ">i" if layout is FLOAT else ">q"
    raw = int(struct.unpack(code, struct.pack(">f" if layout is FLOAT else ">d", number))[0])
    return raw if raw >= 0 else ~(raw & ((1 << (layout.bits - 1)) - 1))


def _float_of_bits(ordered: int, layout: FloatFormat) -> float:
    raw = ordered if ordered >= 0 else ~ordered | (1 << (layout.bits - 1))
    codes = (">I", ">f") if layout is FLOAT else (">Q", ">d")
    return float(struct.unpack(codes[1], struct.pack(codes[0], raw))[0])


def _unscaled(value: Decimal | int, data_type: T.DecimalType) -> int:
    scaled = Decimal(value).scaleb(data_type.scale, _EXACT)
    number = int(scaled)
    if number != scaled or abs(number) >= 10**data_type.precision:
        raise ValueError("it has more digits")
    return number


def _encode_wide_decimal(value: Decimal | int, data_type: T.DecimalType, descending: bool) -> bytes:
    number = _unscaled(value, data_type)
    digits = bcd_digits(data_type)
    negative = number < 0
    text = str(10**digits - 1 - abs(number) if negative != descending else abs(number)).rjust(digits, "0")
    marker = VALUE if negative != descending else VALUE_AT_OR_ABOVE_ZERO
    return bytes([marker]) + bytes.fromhex(text)


def _decode_wide_decimal(reader: _Reader, marker: int, data_type: T.DecimalType, descending: bool) -> Decimal:
    digits = bcd_digits(data_type)
    number = int(reader.take(digits // 2).hex())
    if marker == VALUE:
        number = 10**digits - 1 - number
    negative = (marker == VALUE) != descending
    return Decimal(-number if negative else number).scaleb(-data_type.scale, _EXACT)


def _payload(value: Any, data_type: T.DataType) -> bytes:
    """The ascending payload of a type that is not a number."""
    if isinstance(data_type, T.BooleanType):
        if not isinstance(value, bool):
            raise TypeError("a bool is needed")
        return b"\x01" if value else b"\x00"
    if isinstance(data_type, T.StructType):
        fields = [value[f.name] for f in data_type.fields] if isinstance(value, Mapping) else tuple(value)
        if len(fields) != len(data_type.fields):
            raise ValueError(f"it has {len(fields)} fields")
        pairs = zip(fields, data_type.fields, strict=True)
        return b"".join(_encode_part(item, EncodedPart(field.dataType)) for item, field in pairs)
    if isinstance(data_type, T.ArrayType):
        element = EncodedPart(data_type.elementType)
        return b"".join(b"\x01" + _encode_part(item, element) for item in value) + b"\x00"
    raw = value.encode() if isinstance(data_type, _TEXT) else bytes(value)
    return bytes(raw.replace(b"\x00", b"\x00\x01") + b"\x00\x00")


def _decode_payload(reader: _Reader, data_type: T.DataType) -> Any:
    if isinstance(data_type, T.BooleanType):
        return bool(reader.byte())
    if isinstance(data_type, T.StructType):
        return tuple(_decode_part(reader, EncodedPart(field.dataType)) for field in data_type.fields)
    if isinstance(data_type, T.ArrayType):
        elements = []
        while reader.byte():
            elements.append(_decode_part(reader, EncodedPart(data_type.elementType)))
        return elements
    raw = bytearray()
    while True:
        byte = reader.byte()
        if byte:
            raw.append(byte)
        elif reader.byte():
            raw.append(0)
        else:
            return raw.decode() if isinstance(data_type, _TEXT) else bytes(raw)


class _InvertedReader(_Reader):
    """Reads the payload of a descending part: an ascending one with its bits inverted."""

    def __init__(self, reader: _Reader) -> None:
        super().__init__(b"")
        self._reader = reader

    def byte(self) -> int:
        return self._reader.byte() ^ 0xFF

    def take(self, length: int) -> bytes:
        return _inverted(self._reader.take(length))
