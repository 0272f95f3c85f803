"""Estimated size of rows in memory, by the types of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import types as T

#: Bytes of values that do not take 8. A text is taken to have 20.
_BYTES: Final[Mapping[tuple[type[T.DataType], ...], int]] = {
    (T.BooleanType, T.ByteType, T.NullType): 1,
    (T.ShortType,): 2,
    (T.IntegerType, T.FloatType, T.DateType): 4,
    (T.DecimalType,): 16,
    (T.StringType, T.BinaryType): 20,
}
#: What rows take as Parquet, of what they take in memory; used where a log does not say how many rows a file has.
_COMPRESSED_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class RowWidth:
    """Columns of a row, and about how many bytes it has in memory."""

    columns: int
    bytes: int

    @classmethod
    def of(cls, types: Iterable[T.DataType]) -> RowWidth:
        """The width of rows with columns of some types; at least one column."""
        found = list(types)
        return cls(max(1, len(found)), max(1, sum(map(value_bytes, found))))

    def rows_in(self, file_bytes: int) -> int:
        """About how many rows some files have, where their log does not say."""
        return memory_bytes(file_bytes) // self.bytes


def memory_bytes(file_bytes: int) -> int:
    """Estimated memory of the rows in some files."""
    return round(file_bytes / _COMPRESSED_SHARE)


def value_bytes(data_type: T.DataType) -> int:
    """Estimated bytes of a value in memory.

    Arrays and maps are taken to have one entry.
    """
    if isinstance(data_type, T.StructType):
        return max(1, sum(value_bytes(f.dataType) for f in data_type.fields))
    if isinstance(data_type, T.ArrayType):
        return 4 + value_bytes(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return 4 + value_bytes(data_type.keyType) + value_bytes(data_type.valueType)
    return next((size for types, size in _BYTES.items() if isinstance(data_type, types)), 8)
