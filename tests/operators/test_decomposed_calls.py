"""Calls that are kept as simpler ones, and what global aggregates give over no rows."""

from __future__ import annotations

from fractions import Fraction
from statistics import pvariance
from typing import Any

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.aggregates.kind import CallStrategy
from relstate_dagster.jobs.plan.aggregates.registry import kinds_of
from relstate_dagster.jobs.plan.nodes import Aggregate, walk
from tests.operators.histories import epochs_of
from tests.operators.lab import Lab, decimal

_CALLS = {
    "variances": "var_pop(k) AS a, var_samp(v) AS b, stddev(k) AS c, stddev_pop(v) AS d, variance(g) AS e, "
    "std(CAST(k AS TINYINT)) AS f, stddev_samp(k) FILTER (WHERE s = 'a') AS h",
    "covariances": "covar_pop(k, v) AS a, covar_samp(v, k) AS b, covar_samp(k, g) FILTER (WHERE v > 0) AS c",
    "correlation": "try_divide(round(corr(k, k * k + v), 9), 1) AS a",
    "conditions": "count_if(v > 0) AS a, bool_and(v > 0) AS b, bool_or(v > 0) AS c, every(k > 1) AS d, some(s = 'a') AS e, "
    "any(v IS NULL) FILTER (WHERE k > 1) AS f, regr_count(v, g) AS h",
    "extremes by": "max_by(s, k) AS a, min_by(v, k) AS b, max_by(k, struct(v, k)) FILTER (WHERE s IS NOT NULL) AS c, "
    "min_by(s, struct(v, s)) AS d",
}
_HISTORY: list[list[Any]] = [
    [],
    [
        ("t", 1, (1, "a", decimal(150))),
        ("t", 2, (1, "a", decimal(-25))),
        ("t", 3, (1, "a", None)),
        ("t", 4, (2, "b", decimal(90))),
        ("t", 5, (2, None, decimal(1))),
    ],
    [("t", 2, (2, "a", decimal(700))), ("t", 3, (1, "a", decimal(3))), ("t", 4, None), ("t", 0, (1, "a", decimal(-900)))],
    [("t", key, None) for key in range(4)],
    [("t", 5, None)],
]


@pytest.mark.parametrize("grouped", [True, False], ids=["grouped", "global"])
@pytest.mark.parametrize("name", _CALLS)
def test_no_call_needs_the_rows_of_its_group(spark: SparkSession, name: str, grouped: bool) -> None:
    columns, group = ("s, ", " GROUP BY s") if grouped else ("", "")
    # A correlation divides by zero where all values are equal; its session takes that for NULL.
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", str(name != "correlation").lower())
    with Lab(session, f"SELECT {columns}{_CALLS[name]} FROM t{group}") as lab:
        aggregate = next(node for node in walk(lab.plan) if isinstance(node, Aggregate))
        strategies = {kind.strategy for kind in kinds_of(aggregate)}
        assert strategies <= {CallStrategy.VALUE, CallStrategy.EXTREME}
        for changes in epochs_of(_HISTORY):
            lab.step(changes)
            lab.check()


def test_a_variance_far_from_zero_keeps_all_its_digits(spark: SparkSession) -> None:
    # Spark's own has nine of them right here.
    history = [[("t", k, (1, "a", decimal(n))) for k, n in enumerate((150, -25, 3))], [("t", 1, (1, "a", decimal(-900)))]]
    with Lab(spark, "SELECT var_pop(99999999 + v) AS a, stddev_samp(1000000000 + k) AS b FROM t") as lab:
        for changes, hundredths in zip(epochs_of(history), [(150, -25, 3), (150, -900, 3)], strict=True):
            lab.step(changes)
            (row,) = lab.view().collect()
            assert row.a == pytest.approx(pvariance([Fraction(n, 100) for n in hundredths]), rel=1e-15)
            assert row.b == 1.0


@pytest.mark.parametrize(
    "call", ["stddev(DISTINCT g)", "var_pop(w)", "var_pop(CAST(w AS DOUBLE) / 3)", "corr(w, k)", "max_by(map(k, g), k)"]
)
def test_other_calls_are_computed_by_spark_from_the_rows_of_the_group(spark: SparkSession, call: str) -> None:
    with Lab(spark, f"SELECT size(array({call})) AS n, {call} IS NULL AS none FROM r GROUP BY g") as lab:
        aggregate = next(node for node in walk(lab.plan) if isinstance(node, Aggregate) and node.calls)
        assert kinds_of(aggregate)[0].strategy is CallStrategy.MATERIALIZED_INPUT
        for changes in epochs_of([[("r", 1, (1, 4)), ("r", 2, (1, 7)), ("r", 3, (2, 1))], [("r", 1, (2, 5))]]):
            lab.step(changes)
            lab.check()


def test_over_no_rows_a_call_gives_what_spark_gives(spark: SparkSession) -> None:
    calls = (
        "approx_count_distinct(k) AS a, collect_list(k) AS b, percentile(k, 0.5) AS c, count(DISTINCT k, g) AS d, mode(k) AS e"
    )
    with Lab(spark, f"SELECT {calls} FROM t") as lab:
        for changes in epochs_of([[], [("t", 1, (1, "a", None))], [("t", 1, None)]]):
            lab.step(changes)
            lab.check()
