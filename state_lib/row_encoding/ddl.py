"""Spark's DDL type text (``decimal(15,2)``, ``struct<a:int,b:array<string>>``) to a Spark ``DataType``, without a JVM.

``DataType.fromDDL`` asks the JVM; plans, the command line and the pure-Python twin have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from pyspark.sql import types as T

from relstate_dagster.state_lib.errors import PlanError

_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|[\w.\-]+|[<>(),:])")

_SIMPLE: Final[dict[str, Callable[[], T.DataType]]] = {
    "tinyint": T.ByteType,
    "byte": T.ByteType,
    "smallint": T.ShortType,
    "short": T.ShortType,
    "int": T.IntegerType,
    "integer": T.IntegerType,
    "bigint": T.LongType,
    "long": T.LongType,
    "float": T.FloatType,
    "real": T.FloatType,
    "double": T.DoubleType,
    "boolean": T.BooleanType,
    "binary": T.BinaryType,
    "date": T.DateType,
    "timestamp": T.TimestampType,
    "timestamp_ltz": T.TimestampType,
    "timestamp_ntz": T.TimestampNTZType,
    "variant": T.VariantType,
    "void": T.NullType,
}
_DECIMAL_NAMES: Final = frozenset({"decimal", "dec", "numeric"})
_INTERVAL_FIELDS: Final = {
    "year": (T.YearMonthIntervalType, T.YearMonthIntervalType.YEAR),
    "month": (T.YearMonthIntervalType, T.YearMonthIntervalType.MONTH),
    "day": (T.DayTimeIntervalType, T.DayTimeIntervalType.DAY),
    "hour": (T.DayTimeIntervalType, T.DayTimeIntervalType.HOUR),
    "minute": (T.DayTimeIntervalType, T.DayTimeIntervalType.MINUTE),
    "second": (T.DayTimeIntervalType, T.DayTimeIntervalType.SECOND),
}


@lru_cache(maxsize=4096)
def parse_type(ddl: str) -> T.DataType:
    """Parse one type.

    Parameters
    ----------
    ddl : a type as Spark's ``simpleString`` or SQL DDL writes it, in any letter case.

    Raises
    ------
    PlanError
        The text is not a type this Spark version has.
    """
    parser = _Parser(ddl)
    data_type = parser.data_type()
    if parser.peek():
        raise parser.error()
    return data_type


def to_ddl(data_type: T.DataType) -> str:
    """A type as DDL text that Spark parses.

    Field names are quoted, nullability and char lengths left out.

    Two spellings of a type (``decimal(15, 2)``, ``DECIMAL(15,2)``) give one text.
    """
    if isinstance(data_type, T.StructType):
        fields = (f"`{f.name.replace('`', '``')}`: {to_ddl(f.dataType)}" for f in data_type.fields)
        return f"struct<{', '.join(fields)}>"
    if isinstance(data_type, T.ArrayType):
        return f"array<{to_ddl(data_type.elementType)}>"
    if isinstance(data_type, T.MapType):
        return f"map<{to_ddl(data_type.keyType)}, {to_ddl(data_type.valueType)}>"
    if isinstance(data_type, (T.CharType, T.VarcharType, T.StringType)):
        return "string"
    return data_type.simpleString()


def parts_of(data_type: T.DataType) -> Iterator[T.DataType]:
    """A type and all types within it."""
    yield data_type
    if isinstance(data_type, T.StructType):
        for field in data_type.fields:
            yield from parts_of(field.dataType)
    elif isinstance(data_type, T.ArrayType):
        yield from parts_of(data_type.elementType)
    elif isinstance(data_type, T.MapType):
        yield from parts_of(data_type.keyType)
        yield from parts_of(data_type.valueType)


def contains_map(data_type: T.DataType) -> bool:
    """Whether a type is or contains a map.

    Such values have no order, and no key has them.
    """
    return any(isinstance(part, T.MapType) for part in parts_of(data_type))


class _Parser:
    """Recursive descent over the tokens of one type."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens: list[str] = []
        self._at = 0
        position = 0
        text = ddl.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.error()
            self._tokens.append(match.group(1))
            position = match.end()

    def error(self) -> PlanError:
        return PlanError(f"not a Spark type: {self._ddl!r}; write it as DESCRIBE TABLE shows it")

    def peek(self) -> str:
        return self._tokens[self._at].lower() if self._at < len(self._tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self._tokens[self._at] if self._at < len(self._tokens) else ""
        if not token or (expected is not None and token.lower() != expected):
            raise self.error()
        self._at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self._at += 1
            return True
        return False

    def data_type(self) -> T.DataType:
        name = self.take().lower()
        if name in _SIMPLE:
            return _SIMPLE[name]()
        if name in _DECIMAL_NAMES:
            return self._decimal()
        composite = {
            "string": self._string,
            "char": lambda: T.CharType(self._number()),
            "character": lambda: T.CharType(self._number()),
            "varchar": lambda: T.VarcharType(self._number()),
            "array": self._array,
            "map": self._map,
            "struct": self._struct,
            "interval": self._interval,
        }.get(name)
        if composite is None:
            raise self.error()
        return composite()

    def _number(self) -> int:
        self.take("(")
        number = self.take()
        self.take(")")
        if not number.isdigit():
            raise self.error()
        return int(number)

    def _decimal(self) -> T.DataType:
        if not self.accept("("):
            return T.DecimalType(10, 0)
        numbers = [self.take()]
        if self.accept(","):
            numbers.append(self.take())
        self.take(")")
        if not all(number.isdigit() for number in numbers):
            raise self.error()
        return T.DecimalType(int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0)

    def _string(self) -> T.DataType:
        return T.StringType(self.take()) if self.accept("collate") else T.StringType()

    def _array(self) -> T.DataType:
        self.take("<")
        element = self.data_type()
        self.take(">")
        return T.ArrayType(element)

    def _map(self) -> T.DataType:
        self.take("<")
        key = self.data_type()
        self.take(",")
        value = self.data_type()
        self.take(">")
        return T.MapType(key, value)

    def _struct(self) -> T.DataType:
        self.take("<")
        fields: list[T.StructField] = []
        while not self.accept(">"):
            if fields:
                self.take(",")
            name = self.take()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            self.accept(":")
            data_type = self.data_type()
            nullable = not self.accept("not")
            if not nullable:
                self.take("null")
            if self.accept("comment"):
                self.take()
            fields.append(T.StructField(name, data_type, nullable))
        return T.StructType(fields)

    def _interval(self) -> T.DataType:
        start = self.take().lower()
        end = self.take().lower() if self.accept("to") else start
        if start not in _INTERVAL_FIELDS or end not in _INTERVAL_FIELDS:
            raise self.error()
        family, start_field = _INTERVAL_FIELDS[start]
        end_family, end_field = _INTERVAL_FIELDS[end]
        if family is not end_family or start_field > end_field:
            raise self.error()
        return family(start_field, end_field)


def with_unique_fields(data_type: T.DataType) -> T.DataType:
    """A type whose structs have field names that Delta takes.

    ``struct(a, a)`` is a value in Spark, but no column in Delta.
    """
    if isinstance(data_type, T.ArrayType):
        return T.ArrayType(with_unique_fields(data_type.elementType), data_type.containsNull)
    if isinstance(data_type, T.MapType):
        key, value = with_unique_fields(data_type.keyType), with_unique_fields(data_type.valueType)
        return T.MapType(key, value, data_type.valueContainsNull)
    return unique_struct(data_type) if isinstance(data_type, T.StructType) else data_type


def unique_struct(data_type: T.StructType) -> T.StructType:
    """The struct of :func:`with_unique_fields`: its fields are numbered if two of them have one name."""
    names = [field.name.lower() for field in data_type.fields]
    unique = len(set(names)) == len(names)
    return T.StructType(
        [
            T.StructField(f.name if unique else f"_{n}", with_unique_fields(f.dataType), f.nullable)
            for n, f in enumerate(data_type.fields)
        ]
    )
