"""Frames whose steps Spark analyzes together.

Spark analyzes a frame after each select and each filter. That takes some 10 ms in a young process, however small the step is,
and an epoch of a view has dozens of steps. Steps that are texts wait here until something else is asked of the frame, and are
then analyzed as one: four of them took 14 ms in place of 35. Columns that a step only passes on or renames are not analyzed at
all (LazyFrames.java).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any, Final, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.group import GroupedData

#: Between steps, the texts of one, and a name and its new one, as LazyFrames.java reads them.
_STEP: Final = "\x1e"
_PART: Final = "\x1f"
_ALIAS: Final = "\x1d"
_NAME: Final = r"`((?:[^`]|``)+)`|([A-Za-z_][A-Za-z_0-9]*)"
_PLAIN: Final = re.compile(_NAME)
_COLUMN: Final = re.compile(rf"(?:{_NAME})(?: AS (?:{_NAME}))?")
_CAST: Final = re.compile(rf"CAST\((?:{_NAME}) AS ([a-z]+(?:\(\d+,\d+\))?)\) AS (?:{_NAME})", re.IGNORECASE)
#: Texts that look like names and are values.
_VALUES: Final = frozenset({"true", "false", "null"})
#: Number of a row within its task, from 0: Spark's number of a row has that of the task above 33 bits.
_ROW_OF_ITS_TASK: Final = (1 << 33) - 1

#: Gives Spark's frame after steps that follow one of its frames.
Analyze = Callable[[Any, str], Any]


class _Analyzer:
    """The function of the JVM, where there is one."""

    analyze: Analyze | None = None


def set_analyzer(analyze: Analyze | None) -> Analyze | None:
    """Set the JVM's function that analyzes steps; without one, no frame is lazy.

    Returns
    -------
    The one before.
    """
    before, _Analyzer.analyze = _Analyzer.analyze, analyze
    return before


class LazyFrame(ClassicDataFrame):
    """A DataFrame with steps that Spark has not analyzed yet.

    Whatever is asked of it but a further step of this kind has its steps analyzed. Errors of a step are raised there. What
    PySpark makes of it is lazy, too.

    Parameters
    ----------
    analyzed : Spark's frame; ``None`` before the steps are analyzed.
    pending : the frame that the last step is made on, and the step: its kind and its texts.
    """

    def __new__(cls, *_args: Any) -> LazyFrame:
        """Make one; that of Spark 4.0 and 4.1 takes two arguments."""
        return object.__new__(cls)

    def __init__(self, session: Any, analyzed: Any, pending: tuple[ClassicDataFrame, str] | None = None) -> None:
        # Analyzed frames let go of the one before. Another thread reads either this or `_analyzed`, whichever it finds.
        self._pending = pending
        super().__init__(analyzed, session)

    @property
    def _jdf(self) -> Any:
        pending = self._pending
        if pending is not None:
            self._analyzed = _analyzed(pending)
            self._pending = None
        return self._analyzed

    @_jdf.setter
    def _jdf(self, frame: Any) -> None:
        self._analyzed = frame

    def filter(self, condition: Column | str) -> DataFrame:
        """Rows that fulfil a condition."""
        return where(self, condition) if isinstance(condition, str) else lazy(super().filter(condition))

    def where(self, condition: Column | str) -> DataFrame:
        """As :meth:`filter`."""
        return self.filter(condition)

    def selectExpr(self, *expr: Any) -> DataFrame:  # noqa: N802 - as PySpark calls it
        """Columns by texts."""
        return select(self, _listed(expr))

    def select(self, *cols: Any) -> DataFrame:
        """Columns, by names or as PySpark's columns."""
        if cols and all(isinstance(name, str) and _PLAIN.fullmatch(name) for name in _listed(cols)):
            return select(self, _listed(cols))
        return lazy(super().select(*cols))

    def drop(self, *cols: Any) -> DataFrame:
        """The other columns."""
        if cols and all(isinstance(name, str) for name in cols) and _is_lazy(self, cols):
            return _after(self, "d" + _PART.join(cols))
        return lazy(super().drop(*cols))

    def groupBy(self, *cols: Any) -> GroupedData:  # noqa: N802 - as PySpark calls it
        """Groups; their aggregates are lazy."""
        return grouped(super().groupBy(*cols), self)


class _Groups(GroupedData):
    def agg(self, *exprs: Any) -> DataFrame:
        return lazy(super().agg(*exprs))


def _also_lazy(name: str) -> Callable[..., DataFrame]:
    @wraps(getattr(ClassicDataFrame, name))
    def call(self: LazyFrame, *args: Any, **options: Any) -> DataFrame:
        return lazy(getattr(super(LazyFrame, self), name)(*args, **options))

    return call


for _name in (
    *("alias", "coalesce", "crossJoin", "distinct", "hint", "join", "localCheckpoint", "repartition", "sortWithinPartitions"),
    *("union", "unionByName", "withColumn", "withColumnRenamed", "withColumns"),
):
    setattr(LazyFrame, _name, _also_lazy(_name))


def lazy(frame: DataFrame) -> DataFrame:
    """The same frame, with steps that are analyzed together from now on."""
    if _Analyzer.analyze is None or type(frame) is not ClassicDataFrame:
        return frame
    return LazyFrame(frame.sparkSession, frame._jdf)


def grouped(groups: GroupedData, frame: DataFrame) -> GroupedData:
    """Groups of a frame, with aggregates that are lazy."""
    if _Analyzer.analyze is None or not isinstance(frame, ClassicDataFrame):
        return groups
    return _Groups(groups._jgd, frame)


def _listed(texts: tuple[Any, ...]) -> Sequence[Any]:
    return texts[0] if len(texts) == 1 and isinstance(texts[0], list | tuple) else texts


def select(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Select columns by SQL text, as ``selectExpr`` does.

    Parameters
    ----------
    columns : names, in backticks where they need them, or expressions with their names.
    """
    if not columns or not _is_lazy(frame, columns):
        return _plain(frame).selectExpr(*columns)
    return _after(frame, "s" + _PART.join(map(_column, columns)))


def where(frame: DataFrame, condition: str) -> DataFrame:
    """Rows that fulfil a condition in SQL."""
    return _after(frame, f"w{condition}") if _is_lazy(frame, [condition]) else _plain(frame).filter(condition)


def first_of_each_task(frame: DataFrame, most_rows: int) -> DataFrame:
    """The rows of each task up to one more than a number."""
    if _is_lazy(frame):
        return _after(frame, f"l{_ROW_OF_ITS_TASK}{_PART}{most_rows}")
    return frame.filter(f"(monotonically_increasing_id() & {_ROW_OF_ITS_TASK}L) <= {most_rows}")


@lru_cache(maxsize=4096)
def _column(text: str) -> str:
    """A column as the JVM reads it."""
    typed = _CAST.fullmatch(text)
    if typed is not None and (typed[2] or "").lower() not in _VALUES:
        return f"c{_unquoted(*typed.group(1, 2))}{_ALIAS}{_unquoted(*typed.group(4, 5))}{_ALIAS}{typed[3].lower()}"
    found = _COLUMN.fullmatch(text)
    if found is None or (found[2] or "").lower() in _VALUES:
        return f"e{text}"
    name, alias = (_unquoted(*found.group(n, n + 1)) for n in (1, 3))
    return f"n{name}" if alias is None else f"a{name}{_ALIAS}{alias}"


def _unquoted(in_backticks: str | None, plain: str | None) -> str | None:
    return plain if in_backticks is None else in_backticks.replace("``", "`")


def _is_lazy(frame: DataFrame, texts: Sequence[str] = ()) -> bool:
    if _Analyzer.analyze is None or not isinstance(frame, ClassicDataFrame):
        return False
    return not any(mark in text for text in texts for mark in (_STEP, _PART, _ALIAS))


def _after(frame: DataFrame, step: str) -> DataFrame:
    return LazyFrame(frame.sparkSession, None, (cast("ClassicDataFrame", frame), step))


def _plain(frame: DataFrame) -> DataFrame:
    """The frame with PySpark's own methods."""
    return ClassicDataFrame(frame._jdf, frame.sparkSession) if isinstance(frame, LazyFrame) else frame


def _analyzed(pending: tuple[ClassicDataFrame, str] | None) -> Any:
    steps: list[str] = []
    frame: Any = None
    while pending is not None:
        frame, step = pending
        steps.append(step)
        pending = frame._pending if isinstance(frame, LazyFrame) else None
    assert _Analyzer.analyze is not None
    return _Analyzer.analyze(frame._jdf, _STEP.join(reversed(steps)))
