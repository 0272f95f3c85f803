"""Layout of a Delta table's data files, to read them as plain Parquet.

A file's columns are mostly the table's. Partition columns are not in the files, though, but named by the folders in which
these lie, and a table with mapped columns calls them by other names there. Delta reads what a layout does not cover:
columns mapped by id, and folders without their values. It also reads partition columns that Spark may read differently from
a folder than Delta from its log: timestamps, decimals and floating-point numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, overload
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.state_lib.char_columns import char_length, char_metadata, char_type
from relstate_dagster.state_lib.lake.address import full_path, is_absolute, no_pattern
from relstate_dagster.state_lib.lake.log import TableFacts
from relstate_dagster.state_lib.lazy_frame import lazy
from relstate_dagster.state_lib.sql_text import quoted

_PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_CHANGES: Final = "_change_data/"
#: Types of partition columns with one text for each value, and how the driver holds them.
_PARTITION_TYPES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "date": pa.date32(),
    "boolean": pa.bool_(),
}


@dataclass(frozen=True)
class FileLayout:
    """Layout of one table's files, as of one version.

    Parameters
    ----------
    table : where the Delta table lies.
    schema : its columns.
    partitioned_by : those that its files do not have.
    is_mapped : whether the files have other names for columns.
    """

    table: str
    schema: T.StructType
    partitioned_by: tuple[str, ...] = ()
    is_mapped: bool = False

    @classmethod
    def of(cls, table: str, facts: TableFacts) -> FileLayout | None:
        """Layout of a table as of a version; ``None`` if only Delta can read it."""
        schema = struct_of(facts.schema_json)
        untold = any(schema[name].dataType.simpleString() not in _PARTITION_TYPES for name in facts.partition_columns)
        if facts.column_mapping not in ("none", "name") or untold:
            return None
        return cls(table, schema, facts.partition_columns, facts.column_mapping == "name")

    @cached_property
    def physical(self) -> dict[str, str]:
        """Names of columns in the files; of partition columns, in the log."""
        return {field.name: physical_name(field) if self.is_mapped else field.name for field in self.schema.fields}

    @cached_property
    def padded(self) -> frozenset[str]:
        """Columns with some CHAR.

        Spark pads their texts with blanks up to their length.

        So what files, and logs, say of these columns without Spark is not what its rows have.
        """
        return frozenset(field.name for field in self.schema.fields if char_type(field))

    @property
    def is_plain(self) -> bool:
        """Whether the files have all of the columns, under their names."""
        return not (self.partitioned_by or self.is_mapped)

    def has_partition_values(self, path: str, partition: Mapping[str, Any]) -> bool:
        """Whether the folders of a file name its partition values.

        Parameters
        ----------
        path : of a data file or a file of changes, as the log has it.
        partition : the values by the names that the log has, as they are or as text.
        """
        if not self.partitioned_by:
            return True
        if is_absolute(path):
            return False
        *folders, _ = unquote(path).removeprefix(_CHANGES).split("/")
        expected = [f"{name}={_text(partition.get(self.physical[name]))}" for name in self.partitioned_by]
        # Spark makes a character of each escape; delta-rs writes one for each byte of a character.
        return [unquote(folder, encoding="latin-1") for folder in folders] == expected

    def value(self, column: str, partition: Mapping[str, Any]) -> pa.Scalar:
        """The value of a partition column in a file, in the driver's type."""
        value, data_type = partition.get(self.physical[column]), _PARTITION_TYPES[self.schema[column].dataType.simpleString()]
        if isinstance(value, str):
            return pa.scalar(value or None).cast(data_type)
        return pa.scalar(value, data_type)

    def read(self, spark: SparkSession, files: Sequence[str], *more: T.StructField) -> DataFrame:
        """The rows of some files; no Spark job.

        Parameters
        ----------
        files : their paths, as the log has them.
        more : columns that these files have besides.

        Returns
        -------
        The table's columns, and ``more``.
        """
        if not files:
            return spark.createDataFrame([], T.StructType([*self.schema.fields, *more]))
        stored = _stored_type(self.schema, physical_name if self.is_mapped else _declared_name)
        reader = spark.read.schema(T.StructType([*stored.fields, *more]))
        if self.partitioned_by:
            reader = reader.option("basePath", self.table)
        rows = lazy(reader.parquet(*(no_pattern(full_path(self.table, file)) for file in files)))
        if self.is_plain:
            return rows
        pads = _pads(spark) if self.padded & {*self.partitioned_by} else False
        columns = [self._column(field, pads=pads) for field in self.schema.fields]
        return rows.select(*columns, *(quoted(field.name) for field in more))

    def _column(self, field: T.StructField, *, pads: bool) -> Column:
        column = _as_declared(field) if self.is_mapped else F.col(quoted(field.name))
        if field.name not in self.padded or field.name not in self.partitioned_by:
            return column
        # The one thing of a relation of files that Spark itself does not pad, and that is no CHAR to queries.
        length = char_length(field)
        text = F.when(F.length(column) < length, F.rpad(column, length, " ")).otherwise(column) if pads else column
        return text.alias(field.name, metadata=char_metadata(char_type(field)))


def _pads(spark: SparkSession) -> bool:
    """Whether a session pads CHAR columns, as Spark does by default."""
    is_text = spark.conf.get("spark.sql.legacy.charVarcharAsString") == "true"
    return spark.conf.get("spark.sql.readSideCharPadding") == "true" and not is_text


@lru_cache(maxsize=256)
def struct_of(schema_json: str) -> T.StructType:
    """The columns of a table, as its log describes them, as Spark types."""
    return T.StructType.fromJson(json.loads(schema_json))


def file_name(path: str) -> str:
    """Spark's ``_metadata.file_name`` for the rows of a file."""
    return unquote(path.rsplit("/", 1)[-1])


def _text(value: Any) -> str:
    if value is None or value == "":
        return _NULL
    return str(value).lower() if isinstance(value, bool) else str(value)


def physical_name(field: T.StructField) -> str:
    """Name of a column in the files of a table with mapped columns."""
    return str(field.metadata.get(_PHYSICAL_NAME, field.name))


def _declared_name(field: T.StructField) -> str:
    return str(field.name)


@overload
def _stored_type(data_type: T.StructType, name: Callable[[T.StructField], str]) -> T.StructType: ...


@overload
def _stored_type(data_type: T.DataType, name: Callable[[T.StructField], str]) -> T.DataType: ...


def _stored_type(data_type: T.DataType, name: Callable[[T.StructField], str]) -> T.DataType:
    """A type as files have it.

    Without what Delta's log notes of its columns, and their fields.

    Parameters
    ----------
    name : gives a column's name in the files.
    """
    if isinstance(data_type, T.StructType):
        return T.StructType([_stored_field(field, name) for field in data_type.fields])
    if isinstance(data_type, T.ArrayType):
        return T.ArrayType(_stored_type(data_type.elementType, name), data_type.containsNull)
    if isinstance(data_type, T.MapType):
        key, value = _stored_type(data_type.keyType, name), _stored_type(data_type.valueType, name)
        return T.MapType(key, value, data_type.valueContainsNull)
    return data_type


def _stored_field(field: T.StructField, name: Callable[[T.StructField], str]) -> T.StructField:
    return T.StructField(name(field), _stored_type(field.dataType, name), field.nullable, char_metadata(char_type(field)))


def _as_declared(field: T.StructField) -> Column:
    """A column under its declared name, with its structs' fields likewise.

    Spark casts fields by their order.
    """
    stored = F.col(quoted(physical_name(field)))
    named = stored if _stored_type(field.dataType, physical_name) == field.dataType else stored.cast(field.dataType)
    return named.alias(field.name)
