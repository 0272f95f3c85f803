"""Generate: each changed row once per generated element (explode, inline, …).

Linear: no state, cost |Δ|.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Generate
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.errors import PlanError

_WITH_OUTER_FORM = ("explode", "posexplode", "inline", "variant_explode")


def change(_ctx: EpochContext, node: Generate, child: DataFrame | None) -> OperatorResult:
    """The child's columns and the generated ones, under the row's weight."""
    if child is None:
        return OperatorResult(None)
    return OperatorResult(child.select(*columns_of(node.child.column_names), WEIGHT, generated(node)))


def generated(node: Generate) -> Column:
    """The columns that the generator gives for a row, a row each."""
    return F.expr(_generator_text(node)).alias(*(f.name for f in node.generated))


def _generator_text(node: Generate) -> str:
    name, bracket, rest = node.generator.partition("(")
    if not node.outer or name.endswith("_outer"):
        return node.generator
    if name not in _WITH_OUTER_FORM:
        raise PlanError(f"LATERAL VIEW OUTER {name} has no incremental form; use {', '.join(_WITH_OUTER_FORM)}")
    return f"{name}_outer{bracket}{rest}"
