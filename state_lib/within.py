"""Which rows of a state table can matter, told by the values of one column: what files and pages are skipped by."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from state_lib.delta_files import DataFile
from state_lib.literals import literal
from state_lib.row_encoding.spark_codec import quoted

#: Up to this many values are pushed down one by one, more of them as their range.
_LISTED_VALUES: Final = 32

#: A range that holds more of the rows than this is not worth a filter.
_MOST_READ: Final = 0.5

#: Files with fewer rows than this together are read as they are.
RESTRICTED_ROWS: Final = 500_000


@dataclass(frozen=True, slots=True)
class Within:
    """The values that a column of a state table has in the rows that matter.

    Parameters
    ----------
    column : of the state table.
    values : ascending, without NULLs and duplicates. With none, no row matters.
    """

    column: str
    values: tuple[Any, ...]

    @classmethod
    def of(cls, column: str, values: pa.ChunkedArray, *, null_safe: bool) -> Within | None:
        """The distinct values of an Arrow column; ``None`` where they do not tell what matters.

        That is where the column's type has no exact order, or where it has NULLs that equal NULLs (``null_safe``).
        """
        if not _is_ordered(values.type) or (null_safe and values.null_count):
            return None
        return cls(column, tuple(sorted(pc.unique(values.drop_null()).to_pylist())))

    def may_be_in(self, lower: Mapping[str, Any], upper: Mapping[str, Any], slot: str) -> bool:
        """Whether a file with these statistics can have one of the values in a slot."""
        if slot not in lower or slot not in upper:
            return True
        try:
            first = bisect_left(self.values, lower[slot])
            return first < len(self.values) and bool(self.values[first] <= upper[slot])
        except TypeError:
            return True

    def restrict(self, rows: DataFrame, column: str, ddl: str, files: Sequence[DataFile]) -> DataFrame:
        """Stored rows with a filter on one of their columns that reaches the statistics of row groups and pages.

        Its literals are others in each epoch, so Spark compiles it anew, and the JVM runs new code slowly: few rows, and most
        of many, are read sooner without it.

        Parameters
        ----------
        files : that the rows are read from.
        """
        in_files = sum(file.rows for file in files)
        if in_files < RESTRICTED_ROWS:
            return rows
        if len(self.values) > _LISTED_VALUES and self._rows_between(files, column) > _MOST_READ * in_files:
            return rows
        return rows.where(self.condition(F.col(quoted(column)), ddl))

    def _rows_between(self, files: Sequence[DataFile], column: str) -> float:
        """How many rows are known to lie between the least and the greatest value, those of each file spread evenly."""
        return sum(file.rows * _share(file.lower.get(column), file.upper.get(column), self.values) for file in files)

    def condition(self, slot: Column, ddl: str) -> Column:
        """The filter: one of the values, or between the least and the greatest where there are many."""
        if not self.values:
            return F.lit(False)
        literals = [literal(value, ddl) for value in self._listed()]
        known = [value for value in literals if value is not None]
        if len(self.values) <= _LISTED_VALUES:
            return slot.isin(*known)
        return (slot >= known[0]) & (slot <= known[-1])

    def _listed(self) -> Sequence[Any]:
        return self.values if len(self.values) <= _LISTED_VALUES else (self.values[0], self.values[-1])


def _share(lower: Any, upper: Any, values: Sequence[Any]) -> float:
    """The share of what lies between two bounds that lies between the least and the greatest value, too; 0 if unknown."""
    lowest, highest = values[0], values[-1]
    try:
        whole, part = upper - lower, min(upper, highest) - max(lower, lowest)
        return max(0.0, min(1.0, float(part / whole))) if whole else 1.0
    except TypeError:  # text, which has no distances, or no statistics
        return 0.0


def _is_ordered(data_type: pa.DataType) -> bool:
    """Integers, decimals, dates and text: compared by Python, by Parquet's statistics and by Spark alike."""
    types = pa.types
    return bool(
        types.is_integer(data_type) or types.is_decimal(data_type) or types.is_date(data_type) or types.is_string(data_type)
    )
