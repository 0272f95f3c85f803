"""Changes of a source's schema that a view can follow.

No column that it reads may have another meaning.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import types as T

from relstate_dagster.jobs.sources.file_layout import physical_name, struct_of


def changed_columns(before: str, after: str, columns: Collection[str] | None = None) -> tuple[str, ...]:
    """Sentences on changed columns that a view cannot follow.

    Comments, columns that only can no longer be NULL, and columns that the view does not read change nothing.

    Parameters
    ----------
    before, after : schemas, as logs have them.
    columns : those that the view reads; ``None`` where it may read any, new ones as well.
    """
    if before == after:
        return ()
    old, new = ({f.name: f for f in struct_of(text).fields} for text in (before, after))
    stored = {physical_name(f): f.name for f in new.values()}
    found = [_difference(old[name], new, stored) for name in old if columns is None or name in columns]
    found += [f"column {name} was added" for name in new if columns is None and name not in old]
    return tuple(filter(None, found))


def added_columns(before: str, after: str) -> tuple[str, ...]:
    """The columns that came new."""
    old, new = (struct_of(text).names for text in (before, after))
    return tuple(name for name in new if name not in old)


def _difference(old: T.StructField, new: dict[str, T.StructField], stored: dict[str, str]) -> str | None:
    """Sentence on the change of a column."""
    field = new.get(old.name)
    if field is None:
        renamed = stored.get(physical_name(old))
        return f"column {old.name} was renamed to {renamed}" if renamed else f"column {old.name} was dropped"
    if physical_name(field) != physical_name(old):
        return f"column {old.name} is another column than before, of the same name"
    before, after = old.dataType.simpleString(), field.dataType.simpleString()
    if before != after:
        return f"the type of column {old.name} changed from {before} to {after}"
    if _becomes_nullable(old, field):
        return f"column {old.name} can be NULL now"
    return None if _parts(old.dataType) == _parts(field.dataType) else f"the fields of column {old.name} were renamed"


def _becomes_nullable(old: T.StructField, new: T.StructField) -> bool:
    return (new.nullable and not old.nullable) or _loosened(old.dataType, new.dataType)


def _loosened(old: T.DataType, new: T.DataType) -> bool:
    """Whether two types differ only by parts that became nullable."""
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        return any(_becomes_nullable(a, b) for a, b in zip(old.fields, new.fields, strict=True))
    if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
        return (new.containsNull and not old.containsNull) or _loosened(old.elementType, new.elementType)
    if isinstance(old, T.MapType) and isinstance(new, T.MapType):
        loosened = new.valueContainsNull and not old.valueContainsNull
        return loosened or _loosened(old.keyType, new.keyType) or _loosened(old.valueType, new.valueType)
    return False


def _parts(data_type: T.DataType) -> list[str]:
    """The names in files of all fields of the structs in a type."""
    if isinstance(data_type, T.StructType):
        return [name for f in data_type.fields for name in (physical_name(f), *_parts(f.dataType))]
    if isinstance(data_type, T.ArrayType):
        return _parts(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return [*_parts(data_type.keyType), *_parts(data_type.valueType)]
    return []
