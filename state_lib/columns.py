"""Columns of frames in few calls into the JVM.

PySpark makes two or three calls for each column of a select. An epoch of a view of thirty columns selects some twenty times.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.group import GroupedData

from relstate_dagster.state_lib.lazy_frame import grouped, lazy

#: Between texts that are handed to the JVM as one.
_BETWEEN: Final = "\x1f"


def jvm_of_columns() -> int:
    """Name of the JVM of Spark's columns, for keys of cached expressions."""
    return id(getattr(SparkContext, "_gateway", None))


def group_by(frame: DataFrame, names: Sequence[str]) -> GroupedData:
    """Group by columns, named in backticks where they need them."""
    texts = tuple(names)
    if not _by_jvm(frame, texts):
        return frame.groupBy(*texts)
    jdf: Any = frame._jdf
    return grouped(GroupedData(jdf.groupBy(texts[0], _texts(jvm_of_columns(), texts[1:])), frame), frame)


class Columns:
    """Column expressions that are selected again and again.

    Parameters
    ----------
    columns : expressions with their names.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self._seq: Any = None

    def __iter__(self) -> Any:
        return iter(self._columns)

    def of(self, frame: DataFrame) -> DataFrame:
        """Select them."""
        if not isinstance(frame, ClassicDataFrame):
            return frame.select(*self._columns)
        classic: Any = frame
        if self._seq is None:
            self._seq = classic._jcols(*self._columns)
        return lazy(DataFrame(classic._jdf.select(self._seq), frame.sparkSession))


def _by_jvm(frame: DataFrame, texts: tuple[str, ...]) -> bool:
    """Whether they can be handed over as one text; Spark Connect has no JVM here."""
    return isinstance(frame, ClassicDataFrame) and bool(texts) and not any(_BETWEEN in text for text in texts)


@lru_cache(maxsize=4096)
def _texts(_jvm: int, texts: tuple[str, ...]) -> Any:
    """Texts as a sequence of Scala."""
    calls = _calls(_jvm)
    return calls.wrapped(calls.split(_BETWEEN.join(texts), _BETWEEN))


class _Calls:
    """Methods of the JVM, looked up once."""

    def __init__(self) -> None:
        gateway: Any = SparkContext._gateway
        jvm = gateway.jvm
        self.split = jvm.org.apache.commons.lang3.StringUtils.split
        self.wrapped = jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray


@lru_cache(maxsize=4)
def _calls(_jvm: int) -> _Calls:
    return _Calls()
