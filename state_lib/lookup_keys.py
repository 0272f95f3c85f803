"""Distinct keys of a lookup in one column: they prune files and pages."""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from relstate_dagster.state_lib.key_rows import KeyRows
from relstate_dagster.state_lib.lake.statistics import DataFile
from relstate_dagster.state_lib.literals import literal
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.sql_type import sql_type
from relstate_dagster.state_lib.tuning import tuning

#: Whether a row group or page has one of some values is asked value by value up to so many; of more only whether it can lie
#: between the least and the greatest. It is what sessions set for ``PUSHED_ONE_BY_ONE``.
MOST_ONE_BY_ONE: Final = 128
PUSHED_ONE_BY_ONE: Final = "spark.sql.parquet.pushdown.inFilterThreshold"
#: How whole numbers of each type end in SQL.
#: Of literals of whole numbers, by their bits.
_SUFFIXES: Final = {64: "L", 32: "", 16: "S", 8: "Y"}


class _Reach(enum.Enum):
    """Rows read of files: on pages with a value, in the range, or all.

    ``ONE_OF``: as ``RANGE`` does, and of these rows none but those with one of the values leave the scan.
    """

    LISTED = enum.auto()
    ONE_OF = enum.auto()
    RANGE = enum.auto()
    WHOLE = enum.auto()


@dataclass(frozen=True, slots=True)
class LookupKeys:
    """The values that a column of a state table has in the rows that matter.

    Parameters
    ----------
    column : of the state table.
    values : ascending, without NULLs and duplicates. With none, no row matters.
    key_rows : the keys in all of their columns, where they are known as well.
    """

    column: str
    values: tuple[Any, ...]
    key_rows: KeyRows | None = field(default=None, compare=False)

    @classmethod
    def of(cls, column: str, values: pa.ChunkedArray, *, null_safe: bool) -> LookupKeys | None:
        """The distinct values of an Arrow column; ``None`` where they do not tell what matters.

        That is where the column's type has no exact order, or where it has NULLs that equal NULLs (``null_safe``).
        """
        if not _is_ordered(values.type) or (null_safe and values.null_count):
            return None
        return cls(column, tuple(sorted(pc.unique(values.drop_null()).to_pylist())))

    def renamed(self, name_of: Callable[[str], str]) -> LookupKeys:
        """The keys of a table that calls its columns otherwise."""
        key_rows = None if self.key_rows is None else self.key_rows.renamed(name_of)
        return LookupKeys(name_of(self.column), self.values, key_rows)

    def may_be_in(self, lower: Mapping[str, Any], upper: Mapping[str, Any], slot: str) -> bool:
        """Whether a file with these statistics can have one of the values in a slot."""
        if slot not in lower or slot not in upper:
            return True
        try:
            first = bisect_left(self.values, lower[slot])
            return first < len(self.values) and bool(self.values[first] <= upper[slot])
        except TypeError:
            return True

    def restrict(
        self, rows: DataFrame, column: str, ddl: str, files: Sequence[DataFile], page_rows: int | None = None
    ) -> DataFrame:
        """Stored rows with a filter that reaches row groups' and pages' statistics.

        Few rows are read sooner without one. So are most of many without a range: its literals are others in each epoch, so
        Spark compiles it again, and the JVM runs new code slowly. A list is data to that code, if the session says so.

        Parameters
        ----------
        files : that the rows are read from.
        page_rows : rows of a page in them, ``Tuning.page_rows`` if that is not known.
        """
        match self._reach(files, column, page_rows)[0]:
            case _Reach.LISTED:
                return rows.where(self._one_of(column, ddl, by_page=True))
            case _Reach.ONE_OF:
                return rows.where(self._one_of(column, ddl, by_page=False))
            case _Reach.RANGE:
                return rows.where(F.col(quoted(column)).between(*_literals((self.values[0], self.values[-1]), ddl)))
        return rows

    def rows_read(self, files: Sequence[DataFile], column: str, page_rows: int | None = None) -> float:
        """About how many rows a lookup of these values reads in files.

        Files are taken to be sorted by the column as far as their statistics are.
        """
        return self._reach([file for file in files if self.may_be_in(file.lower, file.upper, column)], column, page_rows)[1]

    def _reach(self, files: Sequence[DataFile], column: str, page_rows: int | None) -> tuple[_Reach, float]:
        """Filter on the rows of files, and about how many rows it reads."""
        in_files = sum(file.rows for file in files)
        if in_files < tuning().unfiltered_rows:
            return _Reach.WHOLE, in_files
        on_pages = self._rows_on_pages(files, column, page_rows)
        if len(self.values) <= tuning().listed_keys:
            return _Reach.LISTED, on_pages
        between = self._rows_between(files, column)
        if isinstance(self.values[0], int) and len(self.values) <= tuning().listed_integers:
            within_range = between or in_files  # nothing is known of the range where there are no statistics
            return (
                (_Reach.LISTED, on_pages) if on_pages < tuning().listed_share * within_range else (_Reach.ONE_OF, within_range)
            )
        return (_Reach.WHOLE, in_files) if between > tuning().range_share * in_files else (_Reach.RANGE, between)

    def _rows_on_pages(self, files: Sequence[DataFile], column: str, page_rows: int | None) -> float:
        """About how many rows are on pages that can have the values.

        If each value is on one page of a file.
        """
        counts = [self._count_in(file.lower.get(column), file.upper.get(column)) for file in files]
        of_page = page_rows or tuning().page_rows
        return sum(rows_on_pages(file.rows, of_page, count) for file, count in zip(files, counts, strict=True))

    def _count_in(self, lower: Any, upper: Any) -> int:
        """Number of the values between two bounds; all if bounds are unknown."""
        try:
            return bisect_right(self.values, upper) - bisect_left(self.values, lower)
        except TypeError:
            return len(self.values)

    def _rows_between(self, files: Sequence[DataFile], column: str) -> float:
        """Rows between the least and greatest value, spread evenly in each file."""
        return sum(file.rows * _share(file.lower.get(column), file.upper.get(column), self.values) for file in files)

    def _one_of(self, column: str, ddl: str, *, by_page: bool) -> Column:
        if not self.values:
            return F.lit(False)
        bits = sql_type(ddl).bits
        if bits is None:
            return F.col(quoted(column)).isin(_literals(self.values, ddl))
        # As text: a thousand literals made one by one take a second.
        texts = [f"{value}{_SUFFIXES[bits]}" for value in self.values]
        listed = f"{quoted(column)} IN ({{}})".format
        condition = listed(", ".join(texts))
        if by_page and len(texts) > MOST_ONE_BY_ONE:
            # All of them are one look into a set for each row. Those that row groups and pages are asked about are for
            # Parquet's reader, which skips a part of the list whose range does not meet a row group.
            parts = [texts[first : first + MOST_ONE_BY_ONE] for first in range(0, len(texts), MOST_ONE_BY_ONE)]
            condition += f" AND ({' OR '.join(listed(', '.join(part)) for part in parts)})"
        return F.expr(condition)


def rows_on_pages(rows: int, page_rows: int, values: int) -> float:
    """About how many rows are on the pages of random values in sorted rows."""
    pages = rows / page_rows
    return page_rows * (pages * (1 - exp(-values / pages)) if pages > 1 else min(pages, values * pages))


def _share(lower: Any, upper: Any, values: Sequence[Any]) -> float:
    """Share of a range that lies within the values' range; 0 if unknown."""
    lowest, highest = values[0], values[-1]
    try:
        whole, part = upper - lower, min(upper, highest) - max(lower, lowest)
        return max(0.0, min(1.0, float(part / whole))) if whole else 1.0
    except TypeError:  # text, which has no distances, or no statistics
        return 0.0


def _literals(values: Sequence[Any], ddl: str) -> list[Column]:
    return [known for known in (literal(value, ddl) for value in values) if known is not None]


def _is_ordered(data_type: pa.DataType) -> bool:
    """Integers, decimals, dates and text: compared by Python, by Parquet's statistics and by Spark alike."""
    types = pa.types
    return bool(
        types.is_integer(data_type) or types.is_decimal(data_type) or types.is_date(data_type) or types.is_string(data_type)
    )
