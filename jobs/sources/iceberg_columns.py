"""Columns of Iceberg tables as Spark's types, and bounds of their files."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from relstate_dagster.state_lib.errors import SourceError

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType, NestedField

_PLAIN: Final = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
}
_EPOCH: Final = dt.date(1970, 1, 1)


def schema_json(schema: Schema, where: str) -> str:
    """The columns of a table as JSON of a Spark schema.

    Each has its id in the metadata, so that a column of the same name is known to be another one.

    Raises
    ------
    SourceError : Spark has no such type, or files do not have the column under its name.
    """
    return json.dumps({"type": "struct", "fields": [_field(field, where) for field in schema.fields]})


def check_names(schemas: Mapping[int, Schema], current: Schema, where: str) -> None:
    """Check that all files have the columns under the names that they have now.

    Raises
    ------
    SourceError : a column was renamed, or dropped and added again.
    """
    now = dict(_names(current.fields))
    ids = {name: field_id for field_id, name in now.items()}
    for schema in schemas.values():
        for field_id, name in _names(schema.fields):
            if now.get(field_id, name) != name:
                raise _refused(where, f"column {now[field_id]} was called {name} before")
            if ids.get(name, field_id) != field_id:
                raise _refused(where, f"column {name} was dropped, and another one was added under its name")


def bound(data_type: IcebergType, value: bytes) -> Any:
    """A bound of a column in a file as a Python value.

    ``None`` for types whose bounds are not used.
    """
    from pyiceberg import conversions  # noqa: PLC0415 - an optional package
    from pyiceberg import types as t  # noqa: PLC0415

    if isinstance(data_type, (t.IntegerType, t.LongType)):
        return int.from_bytes(value, "little", signed=True)  # of fewer bytes where the type was widened later
    if isinstance(data_type, t.DateType):
        days = int.from_bytes(value, "little", signed=True)
        try:
            return _EPOCH + dt.timedelta(days=days)
        except OverflowError:  # Python has the years 1 to 9999
            return None
    return conversions.from_bytes(data_type, value) if isinstance(data_type, (t.StringType, t.DecimalType)) else None


def _field(field: NestedField, where: str) -> dict[str, Any]:
    if field.initial_default is not None:
        raise _refused(where, f"column {field.name} has a default value for the rows of earlier files")
    metadata = {"delta.columnMapping.physicalName": f"{field.name}#{field.field_id}"}
    comment = {"comment": field.doc} if field.doc else {}
    data_type = _type(field.field_type, f"column {field.name}", where)
    return {"name": field.name, "type": data_type, "nullable": not field.required, "metadata": {**metadata, **comment}}


def _type(data_type: IcebergType, what: str, where: str) -> Any:
    from pyiceberg import types as t  # noqa: PLC0415 - an optional package

    match data_type:
        case t.StructType():
            return {"type": "struct", "fields": [_field(field, where) for field in data_type.fields]}
        case t.ListType():
            element = _type(data_type.element_type, what, where)
            return {"type": "array", "elementType": element, "containsNull": not data_type.element_required}
        case t.MapType():
            key, value = (_type(part, what, where) for part in (data_type.key_type, data_type.value_type))
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": not data_type.value_required}
        case t.DecimalType():
            return f"decimal({data_type.precision},{data_type.scale})"
        case t.FixedType():
            return "binary"
    plain = _PLAIN.get(str(data_type))
    if plain is None:
        raise SourceError(f"{where}: {what} is of type {data_type}, which is not read; drop it, or copy the table without it")
    return plain


def _names(fields: tuple[NestedField, ...], prefix: str = "") -> Iterator[tuple[int, str]]:
    """The id and the full name of each column and field."""
    for field in fields:
        name = f"{prefix}{field.name}"
        yield field.field_id, name
        yield from _names_within(field.field_type, name)


def _names_within(data_type: IcebergType, name: str) -> Iterator[tuple[int, str]]:
    from pyiceberg import types as t  # noqa: PLC0415 - an optional package

    match data_type:
        case t.StructType():
            yield from _names(data_type.fields, f"{name}.")
        case t.ListType():
            yield from _names_within(data_type.element_type, f"{name}.element")
        case t.MapType():
            yield from _names_within(data_type.key_type, f"{name}.key")
            yield from _names_within(data_type.value_type, f"{name}.value")


def _refused(where: str, reason: str) -> SourceError:
    return SourceError(
        f"{where}: {reason}. Files are read by the names of columns, so copy the table (CREATE TABLE … AS SELECT), and "
        "declare the copy"
    )
