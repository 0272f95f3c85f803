"""Watermarks: groups that are closed leave the state, and no result ever differs, whatever comes late."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.closing import Closing, Span, closings
from relstate_dagster.jobs.plan.nodes import Field
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.planner.planning import plan_view
from relstate_dagster.state_lib.constants import ROW_ID
from tests.operators.histories import drawn_history, epochs_of, seeds_of
from tests.operators.lab import Lab, decimal
from tests.operators.test_differential import QUERIES

_OVER_GROUPS = {
    **{name: ("t", QUERIES[name]) for name in ("aggregate", "min and max", "distinct calls", "having", "materialized input")},
    "distinct": ("t", QUERIES["distinct"]),
    "append-only": ("e", QUERIES["min and max, append-only"]),
    "append-only, distinct": ("e", "SELECT DISTINCT g, s FROM e"),
    "a multiset": (
        "m",
        "SELECT g, count(s) AS n, max(s) AS hi, sort_array(collect_list(s)) AS l FROM m WHERE s <> 'b' GROUP BY g",
    ),
    "aggregate of an aggregate": ("t", "SELECT n, count(*) AS of FROM (SELECT g, count(*) AS n FROM t GROUP BY g) GROUP BY n"),
    "join over aggregates": (
        "t",
        "SELECT a.g, a.n, b.hi, r.w FROM (SELECT g, count(*) AS n FROM t GROUP BY g) a "
        "FULL JOIN (SELECT g, max(s) AS hi FROM m GROUP BY g) b ON a.g = b.g LEFT JOIN r ON r.k = a.n",
    ),
    "window over an aggregate": (
        "t",
        "SELECT g, n, rank() OVER (ORDER BY n) AS place FROM (SELECT g, count(*) AS n FROM t GROUP BY g)",
    ),
}


@pytest.mark.parametrize("held", [True, False], ids=["held by the driver", "by Spark"])
@pytest.mark.parametrize("name", _OVER_GROUPS)
def test_drawn_histories_over_groups_that_are_closed(spark: SparkSession, name: str, held: bool) -> None:
    """After each epoch more groups are closed; rows of all of them keep coming and going."""
    relation, query = _OVER_GROUPS[name]
    late = 0
    for seed in seeds_of(f"{name}, closed"):
        with Lab(spark, query, collect_shared=held, strict=True) as lab:
            for closed, changes in enumerate(epochs_of(drawn_history(seed, epochs=4))):
                lab.step(changes)
                lab.check()
                late += lab.late_rows
                assert lab.drop_closed(relation, "g", closed + 1)
    assert late


def test_what_is_closed_is_not_stored_until_it_is_late(spark: SparkSession) -> None:
    def stored(lab: Lab) -> set[int | None]:
        return {row["g"] for rows in list(lab.stored().values())[:-1] for row in rows.collect()}

    with Lab(spark, "SELECT g, count(*) AS n, count(DISTINCT s) AS ns, min(v) AS lo FROM t GROUP BY g") as lab:
        rows = [(k, g, "a", decimal(k)) for k, g in enumerate([0, 0, 1, 2, None])]
        lab.step({"t": [(row, 1) for row in rows]})
        assert stored(lab) == {0, 1, 2, None}
        lab.drop_closed("t", "g", 2)
        assert stored(lab) == {2, None}
        lab.step({"t": [((7, 2, "b", None), 1)]})
        assert (stored(lab), lab.late_rows) == ({2, None}, 0)
        # One row is taken away and one comes, in groups that are gone, and a group comes that never was.
        lab.step({"t": [(rows[0], -1), ((8, 1, "b", None), 1), ((9, -4, "b", None), 1)]})
        assert (stored(lab), lab.late_rows) == ({-4, 0, 1, 2, None}, 3)
        lab.check()
        # They are there again, all of them, and need no second look.
        lab.step({"t": [((10, 1, "c", None), 1)]})
        assert lab.late_rows == 1
        lab.check()
        lab.step({"t": [(rows[1], -1), (rows[2], -1), ((8, 1, "b", None), -1), ((10, 1, "c", None), -1)]})
        lab.check()


# -- which groups can be closed -----------------------------------------------------------------------------------------

_EVENTS = Relation(
    "events",
    (Field("at", "timestamp"), Field("day", "date"), Field("who it is", "int"), Field("m", "map<string,int>")),
    (ROW_ID,),
    True,
    (Field(ROW_ID, "bigint", False),),
)
_AT = "`_group`"
_WAYS = {
    "SELECT at, count(*) FROM events GROUP BY at": Span("at", "`at`", "`at`", True),
    "SELECT `who it is`, count(*) FROM events GROUP BY 1": Span("who it is", "`who it is`", "`who it is`", True),
    "SELECT DISTINCT day FROM (SELECT day FROM events WHERE at > '2024-01-01')": Span("day", "`day`", "`day`", True),
    "SELECT CAST(at AS DATE), count(*) FROM events GROUP BY 1": Span("at", _AT, f"date_add({_AT}, 1)"),
    "SELECT to_date(at), count(*) FROM events GROUP BY 1": Span("at", _AT, f"date_add({_AT}, 1)"),
    "SELECT date_trunc('hour', at), count(*) FROM events GROUP BY 1": Span("at", _AT, f"({_AT} + INTERVAL 1 HOUR)"),
    "SELECT date_trunc('Quarter', day), count(*) FROM events GROUP BY 1": Span("day", _AT, f"({_AT} + INTERVAL 3 MONTH)"),
    "SELECT trunc(day, 'WEEK'), count(*) FROM events GROUP BY 1": Span("day", _AT, f"({_AT} + INTERVAL 7 DAY)"),
    "SELECT trunc(at, 'yy') y, count(*) FROM events GROUP BY 1": Span("at", _AT, f"({_AT} + INTERVAL 1 YEAR)"),
    "SELECT count(*) FROM events GROUP BY window(at, '10 minutes')": Span("at", "`window`.start", "`window`.end"),
    "SELECT count(*) FROM events GROUP BY window(at, '1 hour', '20 minutes', '5 minutes'), day": Span(
        "at", "`window`.start", "`window`.end"
    ),
    "SELECT d, count(*) FROM (SELECT CAST(at AS DATE) d FROM events) GROUP BY d": Span("at", "`d`", "date_add(`d`, 1)"),
    # Not of a range, or not to be read again.
    "SELECT hour(at), count(*) FROM events GROUP BY 1": None,
    "SELECT date_format(at, 'yyyy'), count(*) FROM events GROUP BY 1": None,
    "SELECT date_trunc('DECADE', at), count(*) FROM events GROUP BY 1": None,
    "SELECT at, day, count(*) FROM events GROUP BY ROLLUP (at, day)": None,
    "SELECT count(*) FROM events GROUP BY session_window(at, '10 minutes')": None,
    "SELECT named_struct('start', at, 'end', at + INTERVAL 1 DAY), count(*) FROM events GROUP BY 1": None,
    "SELECT count(*) FROM events GROUP BY window(at, '50 minutes', '20 minutes')": None,
    "SELECT at, collect_list(m) FROM events GROUP BY at": None,
    "SELECT at, count(*) FROM (SELECT * FROM events UNION ALL SELECT * FROM events) GROUP BY at": None,
    "SELECT e.at, count(*) FROM events e JOIN events f ON e.day = f.day GROUP BY e.at": None,
    "SELECT count(*) FROM events": None,
}


@pytest.mark.parametrize("query", _WAYS)
def test_which_groups_a_watermark_closes(spark: SparkSession, query: str) -> None:
    plan = plan_view(spark, query, {"events": _EVENTS}, {})
    found = closings(plan, {"events": ["AT", "day", "who it is"]})
    wanted = _WAYS[query]
    if wanted is None:
        assert not found
        return
    ((ways),) = found.values()
    assert Closing("events", wanted) in ways
    assert not closings(plan, {"events": ["other"], "others": ["at"]})


def test_an_aggregate_that_a_join_looks_up_keeps_all_of_its_groups(spark: SparkSession) -> None:
    query = "SELECT t.k, a.n FROM t JOIN (SELECT g, count(*) AS n FROM r GROUP BY g) a ON t.g = a.g"
    with Lab(spark, query) as lab:
        assert closings(lab.plan, {"r": ["g"]}) == {}
