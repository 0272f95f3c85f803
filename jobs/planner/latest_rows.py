"""Window results from the latest rows of a partition: their SQL.

The row before the kept ones, the carrier, stands for all rows up to it. A function of the rows from the first one on reads of
the carrier what it had found so far, in place of the carrier's own value. Spark goes on from there: what it adds up, it adds
in the same order. Functions of a bounded number of rows read the kept rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from relstate_dagster.jobs.plan.decimal_sums import decimal_sum
from relstate_dagster.jobs.plan.latest_rows import AT, IS_CARRIER, PLACE, TARGET, VERSION, running_column
from relstate_dagster.jobs.plan.nodes import Field, LatestRows, NamedExpr, Reach, SortKey
from relstate_dagster.jobs.planner.catalyst import Catalyst, type_ddl
from relstate_dagster.jobs.planner.expressions import ExpressionWriter
from relstate_dagster.jobs.planner.trees import class_name, items
from relstate_dagster.jobs.planner.window_reach import OF_ROWS_BEFORE, OFFSETS, SIZE_BASED
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.sql_type import sql_type
from relstate_dagster.state_lib.tuning import tuning

_TO_HERE: Final = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
#: Functions whose value goes on from the value of earlier rows: their classes, with the names of the calls.
_FOLDED: Final = {"Min": "min", "Max": "max", "First": "first_value", "Last": "last_value"}
#: Functions for which a value that is NULL is as good as none.
_IGNORE_NULLS: Final = {"Min": "min", "Max": "max", "Sum": "sum", "Average": "avg", "Count": "count"}


class _OtherRows(Exception):
    """A function needs rows that are not kept."""


@dataclass
class _Found:
    """Parts of a node's :class:`LatestRows`, collected call by call."""

    running: list[NamedExpr] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    one_by_one: list[str] = field(default_factory=list)
    before: int = 0
    splits_no_peers: bool = False


def latest_rows_of(
    catalyst: Catalyst,
    write: ExpressionWriter,
    windows: Sequence[Any],
    names: Mapping[int, str],
    partition: Sequence[str],
    order: Sequence[SortKey],
    reach: Reach,
) -> LatestRows | None:
    """The latest rows of a window node; ``None`` where a function needs others.

    Parameters
    ----------
    windows : Catalyst's WindowExpressions, analyzed.
    names : the column of each attribute, by its id.
    """
    if reach.before is None or not order:
        return None
    found = _Found()
    writer = _Writer(catalyst, write, names, found, partition, order)
    found.running.append(NamedExpr(writer.place, Field(PLACE, "bigint")))
    try:
        for window in windows:
            found.results.append(writer.result(window))
            found.one_by_one.append(writer.result_of_one(window) or found.results[-1])
    except _OtherRows:
        return None
    margin = reach.before + found.before
    if margin > tuning().kept_frame_rows:
        return None
    one_by_one = () if found.one_by_one == found.results else tuple(found.one_by_one)
    return LatestRows(found.before, margin, tuple(found.running), tuple(found.results), found.splits_no_peers, one_by_one)


@dataclass(frozen=True)
class _Writer:
    """Writes the results of one node."""

    catalyst: Catalyst
    write: ExpressionWriter
    names: Mapping[int, str]
    found: _Found
    partition: Sequence[str]
    order: Sequence[SortKey]

    def result(self, window: Any) -> str:
        """A window expression over kept rows.

        Raises
        ------
        _OtherRows : it needs others.
        """
        function, frame = window.windowFunction(), window.windowSpec().frameSpecification()
        kind = class_name(function)
        if class_name(frame) != "SpecifiedWindowFrame" or self.catalyst.trees.is_a(function, SIZE_BASED):
            raise _OtherRows
        if kind in OF_ROWS_BEFORE:
            return self._rank(kind)
        lower, upper = _offset(frame.lower()), _offset(frame.upper())
        is_of_rows = class_name(frame.frameType()) == "RowFrame"
        if kind in OFFSETS:
            if function.ignoreNulls() or lower is None:
                raise _OtherRows
            self._needs_before(-lower)
            return f"{self.write.window_call(window, self.names)} OVER ({self._ordered})"
        if is_of_rows and lower is not None and upper is not None:
            self._needs_before(-lower)
            return f"{self.write.window_call(window, self.names)} OVER ({self._ordered} {_rows(lower, upper)})"
        if not _is_unbounded(frame.lower()) or upper is None or not (is_of_rows or class_name(frame.upper()) == "CurrentRow"):
            raise _OtherRows
        self._needs_before(-upper)
        return self._running(window, _rows(None, upper) if is_of_rows else "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW")

    def result_of_one(self, window: Any) -> str | None:
        """The result of one row over all kept rows; ``None`` for short frames.

        Values outside of the frame are NULL, which the function ignores. The others come in the order of the frame.
        """
        function, frame = window.windowFunction(), window.windowSpec().frameSpecification()
        lower, upper = _offset(frame.lower()), _offset(frame.upper())
        if lower is None or upper is None or upper - lower <= tuning().slid_frame_rows or not _is_plain_call(function):
            return None
        call = function.aggregateFunction()
        name = _IGNORE_NULLS.get(class_name(call))
        if name is None or not self.write.window_call(window, self.names).lower().startswith(f"{name}("):
            return None
        inside = f"{AT} BETWEEN {TARGET} + {lower} AND {TARGET} + {upper}"
        arguments = (f"IF({inside}, {self.write.sql(child, self.names)}, NULL)" for child in items(call.children()))
        partition = ", ".join(map(quoted, [*self.partition, VERSION]))
        return f"{name}({', '.join(arguments)}) OVER (PARTITION BY {partition})"

    @property
    def place(self) -> str:
        """Rows of the partition up to one, as SQL."""
        return self._over(f"sum({_carried(quoted(PLACE), '1L')})", _TO_HERE)

    @property
    def _ordered(self) -> str:
        partition = ", ".join(map(quoted, [*self.partition, VERSION]))
        keys = (
            f"{quoted(k.column)} {'DESC' if k.descending else 'ASC'} NULLS {'LAST' if k.nulls_last else 'FIRST'}"
            for k in self.order
        )
        return f"PARTITION BY {partition} ORDER BY {', '.join(keys)}"

    def _needs_before(self, rows: int) -> None:
        self.found.before = max(self.found.before, rows)

    def _keep(self, data_type: str, sql_of: Callable[[str, str], str], frame: str) -> str:
        """Keep a running value in the carrier.

        Parameters
        ----------
        sql_of : the value as SQL, of its column and the frame.

        Returns
        -------
        The value in another frame, as SQL.
        """
        column = running_column(len(self.found.running))
        self.found.running.append(NamedExpr(sql_of(quoted(column), _TO_HERE), Field(column, data_type)))
        return sql_of(quoted(column), frame)

    def _over(self, call: str, frame: str) -> str:
        return f"{call} OVER ({self._ordered} {frame})"

    def _rank(self, kind: str) -> str:
        if kind == "RowNumber":
            return f"CAST({self.place} AS INT)"
        self.found.splits_no_peers = True
        if kind == "Rank":
            before = self._over(f"max({quoted(PLACE)})", _TO_HERE)
            return f"CAST(rank() OVER ({self._ordered}) + coalesce({before}, 1L) - 1L AS INT)"
        return self._keep(
            "int",
            lambda column, _: (
                f"(dense_rank() OVER ({self._ordered}) + coalesce({self._over(f'max({column})', _TO_HERE)}, 1) - 1)"
            ),
            _TO_HERE,
        )

    def _running(self, window: Any, frame: str) -> str:
        call = window.windowFunction()
        if not _is_plain_call(call):
            raise _OtherRows
        function = call.aggregateFunction()
        kind, result = class_name(function), type_ddl(function.dataType())
        arguments = [self.write.sql(child, self.names) for child in items(function.children())]
        text = self.write.window_call(window, self.names)
        if kind == "Count":
            return self._count(arguments, frame)
        if kind == "Sum" and text.lower().startswith("sum("):
            return self._sum(arguments[0], type_ddl(function.child().dataType()), result, frame)
        if kind == "Average" and text.lower().startswith("avg("):
            return self._mean(arguments[0], type_ddl(function.child().dataType()), result, frame)
        if kind in _FOLDED and not sql_type(result).is_nested and _can_be_kept(result):
            nulls = " IGNORE NULLS" if text.lower().endswith("ignore nulls") or _ignores_nulls(kind, function) else ""

            def folded(column: str, over: str) -> str:
                return self._over(f"{_FOLDED[kind]}({_carried(column, arguments[0])}){nulls}", over)

            return self._keep(result, folded, frame)
        raise _OtherRows

    def _count(self, arguments: Sequence[str], frame: str) -> str:
        counted = " AND ".join(f"({argument}) IS NOT NULL" for argument in arguments)
        value = f"IF({counted}, 1L, 0L)"
        return self._keep(
            "bigint", lambda column, over: f"coalesce({self._over(f'sum({_carried(column, value)})', over)}, 0L)", frame
        )

    def _sum(self, argument: str, data_type: str, result: str, frame: str) -> str:
        if not _is_summed(data_type):
            raise _OtherRows
        value = f"CAST({argument} AS {result})"
        return self._keep(
            result, lambda column, over: f"CAST({self._over(f'sum({_carried(column, value)})', over)} AS {result})", frame
        )

    def _mean(self, argument: str, data_type: str, result: str, frame: str) -> str:
        decimals = decimal_sum(data_type)
        if not _is_summed(data_type) or (decimals is not None and decimals.mean_reads_total):
            raise _OtherRows
        of_sum = f"decimal({decimals.precision + 10},{decimals.scale})" if decimals else "double"
        total, count = self._sum(argument, data_type, of_sum, frame), self._count([argument], frame)
        mean = decimals.mean(total, count) if decimals else f"{total} / CAST({count} AS double)"
        return f"CASE WHEN {count} > 0 THEN CAST({mean} AS {result}) END"


def _is_plain_call(function: Any) -> bool:
    """Whether it is an aggregate function, of all values."""
    return class_name(function) == "AggregateExpression" and not (function.isDistinct() or function.filter().isDefined())


def _carried(column: str, value: str) -> str:
    """A value, or the running value of the carrier."""
    return f"CASE WHEN {IS_CARRIER} THEN {column} ELSE {value} END"


def _is_summed(data_type: str) -> bool:
    """Whether sums of a type can be kept.

    NULL stands for the overflow of a decimal. A sum has ten digits more than its values, of 38 at most.
    """
    of_values = sql_type(data_type)
    if of_values.decimal is not None:
        return of_values.decimal[0] <= 28
    return of_values.bits is not None or of_values.name in ("float", "double")


def _can_be_kept(data_type: str) -> bool:
    of_value = sql_type(data_type)
    return not (of_value.has_variants or of_value.has_collations or of_value.name == "interval")


def _ignores_nulls(kind: str, function: Any) -> bool:
    return kind in ("First", "Last") and bool(function.ignoreNulls())


def _is_unbounded(bound: Any) -> bool:
    return class_name(bound).startswith("Unbounded")


def _offset(bound: Any) -> int | None:
    """Rows from the current one to a bound, after it if positive; ``None`` without bound."""
    if _is_unbounded(bound):
        return None
    return 0 if class_name(bound) == "CurrentRow" else int(bound.eval(None))


def _rows(lower: int | None, upper: int) -> str:
    first, last = _bounds(lower, upper)
    return f"ROWS BETWEEN {first} AND {last}"


def _bounds(*offsets: int | None) -> Iterator[str]:
    for offset in offsets:
        if offset is None:
            yield "UNBOUNDED PRECEDING"
        elif offset == 0:
            yield "CURRENT ROW"
        else:
            yield f"{abs(offset)} {'PRECEDING' if offset < 0 else 'FOLLOWING'}"
