"""Storage primary keys as text: a JSON array, or ``name=value`` pairs.

The table gives their types.

===================  ==========================================  ==========================
type                 in JSON                                     in pairs
===================  ==========================================  ==========================
numbers              ``5``, ``12.50``, ``"12.50"``               ``5``, ``12.50``
FLOAT, DOUBLE        also ``"NaN"``, ``"-Infinity"``             ``NaN``, ``-Infinity``
STRING               ``"Oslo, N"``                               ``Oslo``, ``'Oslo, N'``
BOOLEAN              ``true``                                    ``true``
DATE, TIMESTAMP      ``"2026-01-31"``, ISO 8601                  ``2026-01-31``, ISO 8601
BINARY               hexadecimal digits, ``"00ff"``              ``00ff``
structs, arrays      arrays of these                             only in JSON
intervals            months, or seconds                          months, or seconds
NULL                 ``null``                                    ``NULL``
===================  ==========================================  ==========================

In pairs a name with other signs than letters, digits and ``_`` stands in backticks. A text stands in quotes if it begins
with a quote, has a comma, has blanks at its ends, or is ``NULL``; a quote in it is doubled. A TIMESTAMP without an offset
is in the local time zone, in which rows are shown as well.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from pyspark.sql import types as T

from relstate_dagster.state_lib.errors import DeclarationError, StateError
from relstate_dagster.state_lib.row_encoding import EncodedPart, encode_row, parse_type
from relstate_dagster.state_lib.table_schema import StateTableSchema

_NAME: Final = r"`(?P<quoted_name>(?:[^`]|``)*)`|(?P<name>[^\s=,`'\"]+)"
_VALUE: Final = r"'(?P<single>(?:[^']|'')*)'|\"(?P<double>(?:[^\"]|\"\")*)\"|(?P<bare>(?!['\"\s])[^,]*)"
_PAIR: Final = re.compile(rf"\s*(?:{_NAME})\s*=\s*(?:{_VALUE})\s*(?:,|$)")


class _Unquoted(str):
    """The text of a value that stood in no quotes: ``NULL`` is NULL."""

    __slots__ = ()


def parse_key(text: str, schema: StateTableSchema) -> dict[str, Any]:
    """The values of the first columns of a storage primary key, by their names.

    Raises
    ------
    DeclarationError
        It is neither an array nor pairs, has more or other columns than the key, or a value that is not of its column's type.
    """
    given = _array(text, schema) if text.lstrip().startswith("[") else _pairs(text)
    return {name: _typed(value, name, schema) for name, value in key_of(given, schema).items()}


def parse_pairs(text: str, types: Mapping[str, str], what: str) -> dict[str, Any]:
    """The values of some columns as ``name=value`` pairs, by their names.

    Parameters
    ----------
    types : of the columns that there are, as DDL text.
    what : whose columns they are, for messages.

    Raises
    ------
    DeclarationError
        It is not pairs, names a column that is not there, or has a value that is not of its column's type.
    """
    lower = {name.lower(): name for name in types}
    given = {name if name in types else lower.get(name.lower(), name): value for name, value in _pairs(text).items()}
    unknown = [name for name in given if name not in types]
    if unknown:
        raise DeclarationError(f"{what} has no column {', '.join(unknown)}; it has {', '.join(types)}")
    return {name: _typed_as(value, name, types[name], what) for name, value in given.items()}


def key_of(given: Sequence[Any] | Mapping[str, Any], schema: StateTableSchema) -> dict[str, Any]:
    """Values of the first storage key columns, by name and in order.

    Raises
    ------
    DeclarationError
        There are more values than columns, or others than the first.
    """
    names = [part.column for part in schema.storage_key]
    key = ", ".join(names) or "no columns"
    if len(given) > len(names):
        raise DeclarationError(f"{len(given)} values for a key of {len(names)}: the key of {schema.label} is ({key})")
    if not isinstance(given, Mapping):
        return dict(zip(names, given, strict=False))
    unknown = [name for name in given if name not in names]
    if unknown:
        raise DeclarationError(f"{', '.join(unknown)} is not in the key of {schema.label}, which is ({key})")
    leading = names[: len(given)]
    missing = [name for name in leading if name not in given]
    if missing:
        raise DeclarationError(
            f"{', '.join(missing)} is not given: a prefix of the key of {schema.label} has its first columns, of ({key})"
        )
    return {name: given[name] for name in leading}


def check_values(key: Mapping[str, Any], schema: StateTableSchema) -> None:
    """Refuse values that are not of the types of their columns.

    Raises
    ------
    DeclarationError
    """
    for name, value in key.items():
        check_value(name, value, schema.column_type(name))


def check_value(name: str, value: Any, ddl: str) -> None:
    """Refuse a value that is not of the type of its column.

    Raises
    ------
    DeclarationError
    """
    data_type = parse_type(ddl)
    if isinstance(data_type, T.NullType):
        if value is not None:
            raise DeclarationError(f"key column {name} is of type VOID: it is NULL, not {value!r}")
        return
    try:
        encode_row([value], [EncodedPart(data_type)])
    except StateError as error:
        raise DeclarationError(f"key column {name}: {error}") from error


def _array(text: str, schema: StateTableSchema) -> list[Any]:
    try:
        found = json.loads(text, parse_float=Decimal)
    except ValueError as error:
        raise DeclarationError(f"the key of {schema.label} is not a JSON array: {error}: {text}") from error
    return list(found)


def _pairs(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    at = 0
    while text[at:].strip():
        pair = _PAIR.match(text, at)
        if pair is None:
            raise DeclarationError(
                f"a key is a JSON array or pairs such as city='Oslo, N', day=2026-01-31; not understood: {text[at:].strip()}"
            )
        name = pair["name"] if pair["quoted_name"] is None else pair["quoted_name"].replace("``", "`")
        if name in found:
            raise DeclarationError(f"{name} is given twice: {text}")
        if pair["single"] is not None:
            found[name] = pair["single"].replace("''", "'")
        elif pair["double"] is not None:
            found[name] = pair["double"].replace('""', '"')
        else:
            found[name] = _Unquoted(pair["bare"].strip())
        at = pair.end()
    return found


def _typed(value: Any, name: str, schema: StateTableSchema) -> Any:
    return _typed_as(value, name, schema.column_type(name), schema.label)


def _typed_as(value: Any, name: str, ddl: str, what: str) -> Any:
    if isinstance(value, _Unquoted):
        value = None if value.upper() == "NULL" else str(value)
    try:
        typed = _value_of(value, parse_type(ddl))
        check_value(name, typed, ddl)
    except (ValueError, TypeError, InvalidOperation, OverflowError, DeclarationError) as error:
        shown = json.dumps(value, default=str, ensure_ascii=False)
        why = f": {error}" if str(error) and not isinstance(error, (InvalidOperation, DeclarationError)) else ""
        raise DeclarationError(f"key column {name} of {what} is of type {ddl.upper()}, not {shown}{why}") from error
    return typed


def _value_of(value: Any, data_type: T.DataType) -> Any:
    """A value out of JSON, or the text of one, as PySpark has it."""
    if value is None:
        return None
    if isinstance(data_type, T.StructType):
        fields = [field.dataType for field in data_type.fields]
        return tuple(_value_of(part, of) for part, of in zip(_list(value), fields, strict=True))
    if isinstance(data_type, T.ArrayType):
        return [_value_of(element, data_type.elementType) for element in _list(value)]
    for types, reader in _READERS.items():
        if isinstance(data_type, types):
            return reader(value)
    raise TypeError("there is no way to write it")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("it is written as a JSON array")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError("a whole number is needed")
    return int(value)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool):
        raise TypeError("a number is needed")
    return Decimal(value)


def _float(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError("a number is needed")
    return float(value)


def _boolean(value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError("true or false is needed")
    return text == "true"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is needed, in quotes")
    return value


def _date(value: Any) -> dt.date:
    return dt.date.fromisoformat(_text(value))


def _timestamp(value: Any) -> dt.datetime:
    # Python 3.10 reads no Z.
    return dt.datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", _text(value)))


def _timestamp_ntz(value: Any) -> dt.datetime:
    found = _timestamp(value)
    if found.tzinfo is not None:
        raise ValueError("it has no time zone")
    return found


#: How a value of each type is read.
_READERS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.YearMonthIntervalType): _whole,
    T.DecimalType: _decimal,
    (T.FloatType, T.DoubleType): _float,
    T.BooleanType: _boolean,
    (T.StringType, T.CharType, T.VarcharType): _text,
    T.BinaryType: lambda value: bytes.fromhex(_text(value)),
    T.DateType: _date,
    T.TimestampType: _timestamp,
    T.TimestampNTZType: _timestamp_ntz,
    T.DayTimeIntervalType: lambda value: dt.timedelta(microseconds=int(_decimal(value) * 1_000_000)),
}
