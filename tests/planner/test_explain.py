"""Golden explains: one file a query, rewritten by ``RELSTATE_UPDATE_GOLDEN=1 pytest tests/planner``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.explain import explain_plan
from relstate_dagster.jobs.plan.nodes import Field, FullQuery, Materialize, OutputColumn
from relstate_dagster.jobs.plan.picture import plan_svg
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.plan.stateful_plan import StatefulPlan
from relstate_dagster.jobs.planner.planning import plan_view
from tests.operators.lab import RELATIONS
from tests.operators.test_differential import QUERIES

_GOLDEN = Path(__file__).parent.parent / "golden"
_EVENTS = Relation("ev", (Field("k", "int", False), Field("g", "int"), Field("ts", "timestamp")), ("k",))
#: Queries of operators that the relations of the differential tests have no columns for, or no name.
_OTHERS = {
    "temporal filter": "SELECT k, ts FROM ev WHERE ts > now() - INTERVAL 1 DAY",
    "temporal project": "SELECT k, CASE WHEN ts > now() THEN 'to come' ELSE 'gone' END AS state FROM ev",
    "session window": "SELECT session_window, g, count(*) AS n FROM ev GROUP BY session_window(ts, '5 minutes'), g",
    "generate": "SELECT k, e FROM t LATERAL VIEW OUTER explode(split(s, 'a')) x AS e",
    "values": "SELECT t.k, x.b FROM t JOIN (VALUES (1, 'one'), (2, 'two')) AS x(a, b) ON t.g = x.a",
}
_ALL = {**QUERIES, **_OTHERS}


@pytest.mark.parametrize("name", _ALL)
def test_explain(spark: SparkSession, name: str) -> None:
    _is_golden(name, _ALL[name], plan_view(spark, _ALL[name], {**RELATIONS, "ev": _EVENTS}))


def test_explain_of_a_full_query() -> None:
    """What the registry makes of a query that reads the time outside of a comparison that can be followed."""
    node = FullQuery("SELECT k, ts < now() AS past FROM ev", (Field("c0", "int", False), Field("c1", "boolean")), ("ev",), True)
    columns = (OutputColumn("k", "c0"), OutputColumn("past", "c1"))
    _is_golden("full query", node.query, Materialize(node, columns))


def _is_a_picture(text: str, tables: int) -> None:
    """No box covers another one, all are inside, and every state table is there."""
    found = ET.fromstring(text)
    rects = [rect.attrib for rect in found.iter("{http://www.w3.org/2000/svg}rect")]
    assert sum(rect["class"] == "state" for rect in rects) == tables
    nodes = [rect for rect in rects if rect["class"] not in ("state", "page")]
    boxes = [tuple(int(rect[a]) for a in ("x", "y", "width", "height")) for rect in nodes]
    for n, (x, y, width, height) in enumerate(boxes):
        assert x >= 0
        assert x + width <= int(found.attrib["width"])
        assert y + height <= int(found.attrib["height"])
        assert not [b for b in boxes[:n] if x < b[0] + b[2] and b[0] < x + width and y < b[1] + b[3] and b[1] < y + height]


def _is_golden(name: str, query: str, plan: Materialize) -> None:
    stateful = StatefulPlan.allocate(plan, 1)
    tables = {found.node: found.tables for found in stateful.nodes}
    text = f"{query}\n\n{explain_plan(plan, tables)}\n"
    golden = _GOLDEN / f"{name.replace(' ', '-').replace(',', '')}.txt"
    if os.environ.get("RELSTATE_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    _is_a_picture(plan_svg(plan, tables), len(stateful.tables))
    # What is stored with the view is the same plan.
    loaded = StatefulPlan.from_dict(json.loads(json.dumps(stateful.to_dict())))
    assert loaded == stateful
    assert hash(loaded.root) == hash(plan)
