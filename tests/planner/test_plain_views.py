"""Queries over plain views are planned as if the text of the view stood there: keys and sides in place survive."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.explain import explain_plan
from relstate_dagster.jobs.plan.nodes import Join, walk
from relstate_dagster.jobs.planner.planning import plan_view
from tests.operators.histories import drawn_history, epochs_of
from tests.operators.lab import RELATIONS, Lab

#: Each reads relations and earlier ones.
_VIEWS = {
    "all_t": "SELECT * FROM t",
    "renamed": "SELECT k AS id, g AS city, v AS amount FROM t",
    "positive": "SELECT k, g, v FROM t WHERE v > 0",
    "pairs": "SELECT t.k AS tk, r.k AS rk, t.g, r.w FROM t JOIN r ON t.g = r.g",
    "sums": "SELECT g, sum(v) AS total, count(*) AS n FROM t GROUP BY g",
    "wide": "SELECT CAST(k AS BIGINT) AS wide_k, g, s FROM t",
    "nested": "SELECT id AS key, city FROM renamed WHERE amount > 0",
    "nested_twice": "SELECT nested.key, r.w FROM nested JOIN r ON nested.key = r.k",
    "stacked": "SELECT k, g FROM t UNION ALL SELECT k, g FROM r",
    "bag": "SELECT g, s FROM m",
}

_QUERIES = {
    "keyed scan": "SELECT * FROM all_t",
    "rename": "SELECT id, amount FROM renamed",
    "key left out": "SELECT city FROM renamed",
    "filter": "SELECT k, v FROM positive WHERE g = 1",
    "two plain views joined": "SELECT all_t.k, renamed.amount FROM all_t JOIN renamed ON all_t.g = renamed.id",
    "a plain view joined to a source": "SELECT r.k, renamed.city FROM r JOIN renamed ON r.g = renamed.id",
    "left join": "SELECT all_t.k, renamed.amount FROM all_t LEFT JOIN renamed ON all_t.g = renamed.id",
    "a join in a view": "SELECT tk, rk, w FROM pairs WHERE w > 2",
    "a join over a join in a view": "SELECT pairs.tk, pairs.rk, all_t.s FROM pairs JOIN all_t ON pairs.rk = all_t.k",
    "nested": "SELECT key, city FROM nested",
    "nested joins": "SELECT key, w FROM nested_twice",
    "semi join on the key": "SELECT id FROM renamed WHERE id IN (SELECT k FROM positive)",
    "semi join": "SELECT id FROM renamed WHERE city IN (SELECT g FROM positive)",
    "semi join below a join": "SELECT tk, w FROM pairs WHERE tk IN (SELECT k FROM positive)",
    "anti join": "SELECT id FROM renamed WHERE NOT EXISTS (SELECT 1 FROM positive WHERE positive.g = renamed.city)",
    "aggregate over a plain view": "SELECT city, sum(amount) AS total FROM renamed GROUP BY city",
    "aggregate in a plain view": "SELECT g, total FROM sums WHERE n > 1",
    "join with an aggregate in a view": "SELECT renamed.id, sums.total FROM renamed JOIN sums ON renamed.city = sums.g",
    "an aggregate of few groups": "SELECT positive.k, sums.total FROM positive JOIN sums ON positive.k = sums.g",
    "a column of another type": "SELECT wide_k, s FROM wide JOIN r ON wide.wide_k = r.k",
    "union": "SELECT k, g FROM stacked WHERE g > 0",
    "window": "SELECT id, rank() OVER (PARTITION BY city ORDER BY amount) AS place FROM renamed",
    "first rows": "SELECT id, amount FROM renamed ORDER BY amount DESC, id LIMIT 2",
    "a keyless plain view": "SELECT all_t.k, bag.s FROM all_t JOIN bag ON all_t.g = bag.g",
    "scalar subquery": "SELECT id FROM renamed WHERE amount > (SELECT avg(v) FROM positive)",
}


def _inlined(query: str) -> str:
    """A query with the texts of plain views for their names, those in the texts too."""
    for name in reversed(_VIEWS):
        query = re.sub(rf"\b(FROM|JOIN) {name}\b", lambda found, name=name: f"{found[1]} ({_VIEWS[name]}) AS {name}", query)
    return query


@pytest.mark.parametrize("name", _QUERIES)
def test_a_plain_view_is_planned_as_its_text(spark: SparkSession, name: str) -> None:
    over_views = plan_view(spark, _QUERIES[name], RELATIONS, _VIEWS)
    inlined = plan_view(spark, _inlined(_QUERIES[name]), RELATIONS)
    assert explain_plan(over_views) == explain_plan(inlined)
    assert over_views == inlined


def test_what_plain_views_keep(spark: SparkSession) -> None:
    assert plan_view(spark, _QUERIES["rename"], RELATIONS, _VIEWS).stream_key == ("id",)
    for name in ("two plain views joined", "nested joins", "semi join on the key"):
        joins = [n for n in walk(plan_view(spark, _QUERIES[name], RELATIONS, _VIEWS)) if isinstance(n, Join)]
        assert [(j.join_type, j.left_in_place, j.right_in_place) for j in joins] == [("inner", True, True)], name


_IN_EPOCHS = (
    "rename",
    "two plain views joined",
    "left join",
    "a join over a join in a view",
    "nested joins",
    "semi join on the key",
    "semi join below a join",
    "anti join",
    "aggregate over a plain view",
    "an aggregate of few groups",
    "a column of another type",
    "union",
)


@pytest.mark.parametrize("name", _IN_EPOCHS)
def test_every_epoch_equals_the_query(spark: SparkSession, name: str) -> None:
    with Lab(spark, _QUERIES[name], views=_VIEWS) as lab:
        for changes in epochs_of(drawn_history(sum(map(ord, name)))):
            lab.step(changes)
            lab.check()
