"""Plans as they are stored: those of earlier versions run, damaged ones are refused in words, nothing is derived again."""

from __future__ import annotations

import json
import random
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.aggregates.registry import kinds_of
from relstate_dagster.jobs.plan.nodes import Aggregate, walk
from relstate_dagster.jobs.plan.state_tables import infer_state_tables
from relstate_dagster.jobs.plan.stateful_plan import FORMAT, StatefulPlan
from relstate_dagster.state_lib.errors import PlanError, RelstateError
from tests.operators.histories import drawn_history, epochs_of, seeds_of
from tests.operators.lab import Lab

_GOLDEN = Path(__file__).parents[1] / "golden" / "plans"
_STORED = {
    (path.stem, name): stored
    for path in sorted(_GOLDEN.glob("format-*.json"))
    for name, stored in json.loads(path.read_text()).items()
}


#: The kinds of the aggregate calls of some plans, which format 1 does not name.
_KINDS = {
    "calls of every kind": [
        *("count", "count", "sum", "avg", "avg", "min", "max", "distinct count", "distinct sum"),
        *("materialized", "materialized", "materialized", "count", "sum", "sum"),
    ],
    "append-only calls": ["append-only min", "append-only max", "distinct count", "materialized"],
}


@pytest.mark.parametrize("name", _KINDS)
def test_calls_are_of_the_kinds_that_they_were(name: str) -> None:
    plan = StatefulPlan.from_dict(_STORED["format-1", name]["plan"]).root
    (node,) = (n for n in walk(plan) if isinstance(n, Aggregate))
    assert [kind.name for kind in kinds_of(node)] == _KINDS[name]


def test_there_is_a_file_of_each_format() -> None:
    assert {version for version, _ in _STORED} == {f"format-{n}" for n in range(1, FORMAT + 1)}


@pytest.mark.parametrize("name", _STORED, ids=" ".join)
def test_a_stored_plan_runs(spark: SparkSession, name: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    stored = _STORED[name]
    plan = StatefulPlan.from_dict(stored["plan"])
    _forbid_to_derive(monkeypatch)
    with Lab(spark, stored["query"], planned=plan, strict=True) as lab:
        for changes in epochs_of(drawn_history(seeds_of(" ".join(name))[0])):
            lab.step(changes)
            lab.check()


def _forbid_to_derive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let whatever works out state tables anew fail."""

    def derived(node: object) -> None:
        raise AssertionError(f"the state tables of {node} were worked out again")

    for module in list(sys.modules.values()):
        if getattr(module, "infer_state_tables", None) is infer_state_tables and "relstate_dagster" in module.__name__:
            monkeypatch.setattr(module, "infer_state_tables", derived)


_PLAN = StatefulPlan.from_dict(_STORED["format-1", "joins"]["plan"]).to_dict()


def _changed(*path: str | int, to: Any) -> dict[str, Any]:
    changed = deepcopy(_PLAN)
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return changed


_JOIN = next(n for n, entry in enumerate(_PLAN["nodes"]) if entry["plan"]["node"] == "Join")
_TABLE = _PLAN["nodes"][_JOIN]["tables"][0]


@pytest.mark.parametrize(
    ("damaged", "problem"),
    [
        (_changed("format", to=FORMAT + 1), f"a stored plan has format {FORMAT + 1}, .*upgrade relstate-dagster"),
        (_changed("nodes", 1, "id", to=_PLAN["nodes"][0]["id"]), "node ids more than once"),
        (_changed("nodes", to=_PLAN["nodes"][:-1]), "no materialization with one state table at its root"),
        (_changed("nodes", to=[]), "no materialization"),
        (_changed("nodes", 0, "plan", "node", to="Teleport"), "unknown node Teleport; upgrade"),
        (_changed("nodes", 0, "plan", "speed", to=1), "Scan.speed"),
        (_changed("nodes", 0, "plan", "relation", to=3), "Scan.relation is 3"),
        (_changed("nodes", _JOIN, "plan", "left", to={"ref": 99}), "refers to node 99"),
        (_changed("nodes", _JOIN, "tables", to=[_TABLE, _TABLE]), "table ids more than once"),
        (_changed("nodes", 0, "plan", to={"node": "Scan", "relation": "t"}), "damaged: Scan: "),
        ({"format": FORMAT}, "a stored plan is damaged: KeyError"),
    ],
    ids=["later", "ids", "root", "empty", "node", "field", "type", "input", "tables", "fields", "nodes"],
)
def test_a_damaged_plan_is_refused(damaged: dict[str, Any], problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        StatefulPlan.from_dict(damaged)


def test_damage_anywhere_is_noticed_or_changes_nothing_but_a_value() -> None:
    """Never an error of Python's own."""
    rng = random.Random(0)
    refused = 0
    for _ in range(500):
        damaged = deepcopy(_PLAN)
        place: Any = damaged
        while True:
            step = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
            inner = place[step]
            if not inner or not isinstance(inner, dict | list) or rng.random() < 0.2:
                break
            place = inner
        if rng.random() < 0.3 and isinstance(place, dict):
            del place[step]
        else:
            place[step] = rng.choice([None, 7, "x", [], {}, True, {"ref": 1}, -1])
        try:
            StatefulPlan.from_dict(damaged)
        except RelstateError:
            refused += 1
    assert refused > 250
