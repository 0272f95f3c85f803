"""Rows of a plan's nodes as of an epoch, by Spark, each with its identity.

=================  ====================================================================================================
node               identity of a row
=================  ====================================================================================================
Scan               the source's key, else all values of its table's columns; of a view, that of the row of its plan
Filter, Project,   that of the row of the input
Window, TopN, …
UnionAll           which input, and that of its row
Join               those of both rows, and for an outer join whether there is one
Aggregate          the values of its group
=================  ====================================================================================================

So a row of a node says by itself which rows of its inputs it is from, and no computed value is compared. A sum of
floating-point numbers may differ each time. The evaluation gives what the operators of an epoch give: ties of windows and
limits are broken in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.catalog.relations import view_columns
from relstate_dagster.jobs.engine.instants import timestamp_sql
from relstate_dagster.jobs.inspect.comparable import comparable
from relstate_dagster.jobs.inspect.why.view_at import ViewAt
from relstate_dagster.jobs.operators.leaves import plain_values
from relstate_dagster.jobs.operators.row_rules import aggregated, joined, one_sided, rows_by_rule
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import (
    Aggregate,
    Filter,
    FullQuery,
    Join,
    PlanNode,
    Scan,
    Temporal,
    TemporalFilter,
    UnionAll,
    Values,
)
from relstate_dagster.jobs.view_epoch.view_epoch import full_query
from relstate_dagster.state_lib.errors import EpochError
from relstate_dagster.state_lib.sql_text import quoted


@dataclass(frozen=True)
class Rows:
    """Rows of a node: its columns, and named columns of its identity."""

    frame: DataFrame
    identity: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """One input within a row's identity: its columns, and whether there is a row.

    Parameters
    ----------
    identity : columns of the node's identity, each with the input's column that it is.
    flag, value : the column that has this value where there is a row of the input; none where there always is one.
    """

    identity: dict[str, str]
    flag: str | None = None
    value: object = True


@dataclass
class PlanRows:
    """The rows of the nodes of one view's plan; each node is described once."""

    view: ViewAt
    _rows: dict[PlanNode, Rows] = field(default_factory=dict)
    #: Of each join and union, what the identity says of its inputs.
    _parts: dict[PlanNode, tuple[Part, ...]] = field(default_factory=dict)

    def of(self, node: PlanNode) -> Rows:
        """The rows of a node."""
        if node not in self._rows:
            self._rows[node] = self._evaluated(node)
        return self._rows[node]

    def parts(self, node: PlanNode) -> tuple[Part, ...]:
        """Parts of a row's identity, for the inputs of a scan, join or union."""
        self.of(node)
        return self._parts[node]

    def _evaluated(self, node: PlanNode) -> Rows:
        own: dict[type[PlanNode], Callable[[Any], Rows]] = {
            Scan: self._scanned,
            Values: self._constants,
            FullQuery: self._of_query,
            UnionAll: self._union,
            Join: self._joined,
            Aggregate: self._aggregated,
        }
        return own.get(type(node), self._by_rule)(node)

    def _by_rule(self, node: PlanNode) -> Rows:
        child = self.of(node.children[0])
        instant = self._instant() if isinstance(node, Temporal) else None
        return Rows(rows_by_rule(node, [child.frame], child.identity, instant=instant), child.identity)

    def condition(self, node: Filter | TemporalFilter) -> str:
        """Condition of a filter on its input's rows, as SQL text."""
        return node.condition if isinstance(node, Filter) else node.condition_at(self._instant())

    def _instant(self) -> str:
        """The instant of the epoch, as SQL text."""
        instant = self.view.entry.now_at(self.view.epoch.instant)
        if instant is None:
            raise EpochError(f"the catalog does not know the instant of epoch {self.view.epoch.epoch}")
        return timestamp_sql(instant)

    def _identified(self, node: PlanNode, frame: DataFrame, by: list[str]) -> Rows:
        """Rows of a scan with an identity of some SQL texts."""
        names = tuple(self.view.past.fresh_name() for _ in by)
        self._parts[node] = (Part(dict(zip(names, by, strict=True))),)
        identity = (F.expr(sql).alias(name) for name, sql in zip(names, by, strict=True))
        return Rows(frame.select(*columns_of(node.column_names), *identity), names)

    def _scanned(self, node: Scan) -> Rows:
        if self.view.is_view(node.relation):
            upstream = self.view.upstream(node.relation)
            below = rows_of(upstream).of(upstream.entry.plan)
            frame = below.frame.selectExpr(*view_columns(upstream.entry), *map(quoted, below.identity))
            return self._identified(node, frame, list(below.identity))
        rows = self.view.source_rows(node.relation)
        by = source_identity(self.view, node.relation, rows)
        names = identity_names(len(by))
        identity = (F.expr(sql).alias(name) for name, sql in zip(names, by, strict=True))
        planned = self.view.inputs.source(node.relation).as_planned(rows.select("*", *identity))
        return self._identified(node, planned, names)

    def _constants(self, node: Values) -> Rows:
        return self._constant(plain_values(self.view.session, node))

    def _constant(self, frame: DataFrame) -> Rows:
        name = self.view.past.fresh_name()
        return Rows(frame.withColumn(name, F.lit(0)), (name,))

    def _of_query(self, node: FullQuery) -> Rows:
        frame = full_query(self.view.inputs, self.view.session).toDF(*node.column_names)
        parts = (comparable(quoted(name), frame.schema[name].dataType) for name in node.column_names)
        name = self.view.past.fresh_name()
        row = F.expr(f"struct({', '.join(f'{sql} AS _c{n}' for n, sql in enumerate(parts))})")
        return Rows(frame.withColumn(name, row), (name,))

    def _union(self, node: UnionAll) -> Rows:
        inputs = [self.of(child) for child in node.inputs]
        flag = self.view.past.fresh_name()
        parts = [Part({self.view.past.fresh_name(): name for name in rows.identity}, flag, n) for n, rows in enumerate(inputs)]
        self._parts[node] = tuple(parts)
        types = {
            new: rows.frame.schema[old].dataType
            for rows, p in zip(inputs, parts, strict=True)
            for new, old in p.identity.items()
        }
        frames = []
        for n, (rows, part) in enumerate(zip(inputs, parts, strict=True)):
            identity = [
                (F.col(part.identity[name]) if name in part.identity else F.lit(None).cast(data_type)).alias(name)
                for name, data_type in types.items()
            ]
            frames.append(rows.frame.select(*columns_of(node.column_names), *identity, F.lit(n).alias(flag)))
        return Rows(reduce(DataFrame.union, frames), (*types, flag))

    def side(self, node: PlanNode) -> tuple[Rows, Part]:
        """Rows of a join's side, with a renamed identity and a flag for presence."""
        rows, flag = self.of(node), self.view.past.fresh_name()
        part = Part({self.view.past.fresh_name(): name for name in rows.identity}, flag)
        identity = (F.col(old).alias(new) for new, old in part.identity.items())
        frame = rows.frame.select(*columns_of(node.column_names), *identity, F.lit(True).alias(flag))
        return Rows(frame, (*part.identity, flag)), part

    def _joined(self, node: Join) -> Rows:
        if not node.keeps_right_columns:
            return self._one_sided(node)
        (left, of_left), (right, of_right) = self.side(node.left), self.side(node.right)
        self._parts[node] = (of_left, of_right)
        identity = (*left.identity, *right.identity)
        pairs = joined(node, left.frame, right.frame, node.join_type.replace(" outer", ""))
        return Rows(pairs.select(*columns_of(node.column_names), *identity), identity)

    def _one_sided(self, node: Join) -> Rows:
        left, right = self.of(node.left), self.of(node.right)
        return Rows(one_sided(node, left.frame, right.frame, left.identity), left.identity)

    def _aggregated(self, node: Aggregate) -> Rows:
        frame, group = aggregated(node, self.of(node.child).frame), columns_of(node.group)
        if not group:
            return self._constant(frame)
        names = tuple(self.view.past.fresh_name() for _ in group)
        self._parts[node] = (Part(dict(zip(names, group, strict=True))),)
        return Rows(frame.select("*", *(F.col(c).alias(n) for n, c in zip(names, group, strict=True))), names)


def rows_of(view: ViewAt) -> PlanRows:
    """The rows of a view's plan, described once for all views that read it."""
    if view.plan_rows is None:
        view.plan_rows = PlanRows(view)
    known: PlanRows = view.plan_rows
    return known


def source_identity(view: ViewAt, source: str, rows: DataFrame) -> list[str]:
    """Identity of a source's rows, as SQL texts: its key, or all columns."""
    key = view.past.state.sources[source].primary_key
    if key:
        return columns_of(key)
    columns = view.table_columns(source)
    parts = (comparable(quoted(name), rows.schema[name].dataType) for name in columns)
    return [f"struct({', '.join(f'{sql} AS _c{n}' for n, sql in enumerate(parts))})"]


def identity_names(count: int) -> list[str]:
    """Names of the columns of a source's identity."""
    return [f"__why_source_{n}" for n in range(count)]
