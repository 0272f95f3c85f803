"""Rows of nodes whose rows follow from each row of their inputs alone.

Operators apply these rules to changes, lookups in place to the rows of some keys, closed groups to the rows of a range, and
provenance to all rows. A rule is the same for any of them: it says which columns a row gets, and passes others on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Arrange, Expand, Filter, Generate, PlanNode, Project, UnionAll
from relstate_dagster.state_lib.columns import select
from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.sql_text import quoted

_WITH_OUTER_FORM: Final = ("explode", "posexplode", "inline", "variant_explode")


def rows_by_rule(node: PlanNode, inputs: Sequence[DataFrame], carried: Sequence[str]) -> DataFrame:
    """Rows of a node.

    Parameters
    ----------
    inputs : rows of its inputs, with their columns and those that are carried.
    carried : columns that a row keeps, as a weight. No rule reads them.

    Raises
    ------
    PlanError : there is no such rule for the node.
    """
    rule = _RULES.get(type(node))
    if rule is None:
        raise PlanError(f"rows of {type(node).__name__} do not follow from each row of its inputs alone")
    return rule(node, inputs, carried)


def _filtered(node: Filter, inputs: Sequence[DataFrame], _carried: Sequence[str]) -> DataFrame:
    return inputs[0].where(node.condition)


def _projected(node: Project, inputs: Sequence[DataFrame], carried: Sequence[str]) -> DataFrame:
    return select(inputs[0], [*(f"{e.sql} AS {quoted(e.output.name)}" for e in node.expressions), *carried])


def _stacked(_node: UnionAll, inputs: Sequence[DataFrame], _carried: Sequence[str]) -> DataFrame:
    return reduce(DataFrame.union, inputs)


def _passed_on(_node: Arrange, inputs: Sequence[DataFrame], _carried: Sequence[str]) -> DataFrame:
    return inputs[0]


def _expanded(node: Expand, inputs: Sequence[DataFrame], carried: Sequence[str]) -> DataFrame:
    structs = []
    for projection in node.projections:
        fields = ", ".join(
            f"CAST({sql} AS {f.data_type}) AS {quoted(f.name)}" for sql, f in zip(projection, node.columns, strict=True)
        )
        structs.append(f"struct({fields})")
    return inputs[0].select(F.expr(f"inline(array({', '.join(structs)}))"), *carried)


def _generated(node: Generate, inputs: Sequence[DataFrame], carried: Sequence[str]) -> DataFrame:
    return inputs[0].select(*columns_of(node.child.column_names), *carried, _generator(node))


def _generator(node: Generate) -> Column:
    """The columns that the generator gives for a row, a row each."""
    name, bracket, rest = node.generator.partition("(")
    text = node.generator
    if node.outer and not name.endswith("_outer"):
        if name not in _WITH_OUTER_FORM:
            raise PlanError(f"LATERAL VIEW OUTER {name} has no incremental form; use {', '.join(_WITH_OUTER_FORM)}")
        text = f"{name}_outer{bracket}{rest}"
    return F.expr(text).alias(*(f.name for f in node.generated))


_RULES: Final[dict[type[PlanNode], Callable[[Any, Sequence[DataFrame], Sequence[str]], DataFrame]]] = {
    Filter: _filtered,
    Project: _projected,
    UnionAll: _stacked,
    Arrange: _passed_on,
    Expand: _expanded,
    Generate: _generated,
}
