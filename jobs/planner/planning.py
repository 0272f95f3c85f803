"""From a view's query to its plan."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from relstate_dagster.jobs.declare.query_function import Query
from relstate_dagster.jobs.engine.functions import UserFunctions
from relstate_dagster.jobs.plan.nodes import Materialize
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.planner.catalyst import Catalyst
from relstate_dagster.jobs.planner.lowering import Lowering
from relstate_dagster.jobs.planner.semi_join_reduction import keeps_no_more
from relstate_dagster.jobs.planner.text_check import check_texts
from relstate_dagster.jobs.planner.types_check import check_kept_types, check_published_types


def plan_view(
    spark: SparkSession,
    query: Query,
    relations: Mapping[str, Relation],
    views: Mapping[str, Query] | None = None,
    functions: UserFunctions | None = None,
    *,
    is_of_a_day: bool = False,
    by_days: bool = False,
) -> Materialize:
    """Plan a view.

    Parameters
    ----------
    spark : a classic session; its ANSI flag, time zone and case sensitivity become the plan's.
    query : the SELECT of the view, or the function that returns its rows.
    relations : the sources and materialized views that the query may name.
    views : plain views, inlined, in an order in which each reads only earlier ones.
    functions : what the query may call besides Spark's own functions.
    is_of_a_day : whether the date is a constant of the plan, which holds on one day.
    by_days : whether all current time functions give the start of the day.

    Raises
    ------
    PlanError : Spark refuses the query; its subclass ``NotIncremental`` where a node has no incremental form.
    """
    catalyst = Catalyst(spark, relations, views or {}, functions, is_of_a_day=is_of_a_day, by_days=by_days)
    plan = lowered(catalyst, relations, query)
    check_published_types(plan)
    check_kept_types(plan)
    check_texts(catalyst.session, plan)
    return plan


def lowered(catalyst: Catalyst, relations: Mapping[str, Relation], query: Query) -> Materialize:
    """A query's plan, with reduced aggregates unless it then keeps more of them."""
    lowering = Lowering(catalyst, relations)
    plan = lowering.view(query)
    if not lowering.has_reduced:
        return plan
    whole = Lowering(catalyst, relations, reduces=False).view(query)
    return plan if keeps_no_more(plan, whole) else whole
