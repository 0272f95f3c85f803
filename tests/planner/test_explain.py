"""Golden explains: one file a query, rewritten by ``RELSTATE_UPDATE_GOLDEN=1 pytest tests/planner``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.planner.explain import explain_plan
from jobs.planner.nodes import walk
from jobs.planner.planning import plan_view
from jobs.planner.serialize import plan_from_dict, plan_to_dict
from jobs.planner.state_tables import infer_state_tables
from state_lib.table_catalog import TableCatalog
from tests.operators.lab import RELATIONS
from tests.operators.test_differential import QUERIES

_GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.mark.parametrize("name", QUERIES)
def test_explain(spark: SparkSession, name: str) -> None:
    plan = plan_view(spark, QUERIES[name], RELATIONS)
    descs, _ = TableCatalog(1).allocate([s for node in walk(plan) for s in infer_state_tables(node)])
    text = f"{QUERIES[name]}\n\n{explain_plan(plan, descs)}\n"
    golden = _GOLDEN / f"{name.replace(' ', '-').replace(',', '')}.txt"
    if os.environ.get("RELSTATE_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    # What is stored with the view is the same plan.
    assert plan_from_dict(plan_to_dict(plan)) == plan
    assert hash(plan_from_dict(plan_to_dict(plan))) == hash(plan)
