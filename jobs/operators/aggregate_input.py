"""Materialized input: any other aggregate of Spark, recomputed by Spark for the affected groups.

The state holds the input rows of all groups, under ``group key | stream key``. Spark's own aggregate is run over two sets
of rows of the affected groups: the rows as of the last epoch, and those rows with the change added. Its results are the
group's old and new ones. Cost: the rows of the affected groups.

Sums of floating-point numbers, lists and sketches depend on the order of the rows. An epoch has to retract, to the last
bit, what an earlier one has given. So Spark gets the rows of a group in one order whenever it computes them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.aggregate_group import Affected, GroupFrames, Tables, only
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.materialized_input import old_and_new
from relstate_dagster.jobs.operators.row_rules import in_order_of_groups
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.aggregates.kind import CallStrategy, Version
from relstate_dagster.jobs.plan.aggregates.materialized import depends_on_order
from relstate_dagster.jobs.plan.nodes import Aggregate

_VERSION = "_version"
_OVER_NOTHING = "_over_nothing"
#: What Spark computed of the rows there are, where a global aggregate may have none.
_FOUND = "_found"


def fold(ctx: EpochContext, node: Aggregate, delta: RowSet, tables: Tables, affected: Affected, frames: GroupFrames) -> None:
    """Write the changed input rows, and add old and new values of calls."""
    if tables.input is None:
        return
    changed = delta.shared(summed=not ctx.is_netted(node.child))
    tables.input.write(changed.frame)
    versions = old_and_new(ctx, node, tables.input, node.group, changed, affected, _VERSION)
    calls = {p: node.calls[p] for p in _positions(tables)}
    results = [F.expr(f"{call.sql} AS _result_{position}") for position, call in calls.items()]
    if any(depends_on_order(call) for call in calls.values()):
        versions = in_order_of_groups(node, versions)
    computed = versions.groupBy(*columns_of(node.group), _VERSION).agg(*results)
    of_version = "" if node.group else _FOUND
    measures = {Version(v, p)[of_version]: f"IF({_VERSION} = '{v}', _result_{p}, NULL)" for p in calls for v in ("old", "new")}
    if not node.group:
        # Not always NULL: an empty array, an empty sketch, 0.
        nothing = {f"{_OVER_NOTHING}_{position}": call.sql for position, call in calls.items()}
        over_nothing = versions.where("false").agg(*(F.expr(f"{sql} AS {name}") for name, sql in nothing.items()))
        frames.add(over_nothing, {name: only(name) for name in nothing})
        measures |= {f"_has_{v}": f"IF({_VERSION} = '{v}', true, NULL)" for v in ("old", "new")}
    picked = computed.selectExpr(*columns_of(node.group), *(f"{sql} AS {name}" for name, sql in measures.items()))
    frames.add(picked, {name: only(name) for name in measures})


def with_results(node: Aggregate, tables: Tables, groups: DataFrame) -> DataFrame:
    """Add the values of a global aggregate's calls: over no rows, those that Spark gives."""
    if node.group or tables.input is None:
        return groups
    chosen = (
        f"IF(_has_{v}, {Version(v, p)[_FOUND]}, {_OVER_NOTHING}_{p}) AS {Version(v, p)['']}"
        for p in _positions(tables)
        for v in ("old", "new")
    )
    return groups.selectExpr("*", *chosen)


def _positions(tables: Tables) -> list[int]:
    return [p for p, kind in enumerate(tables.kinds) if kind.strategy is CallStrategy.MATERIALIZED_INPUT]
