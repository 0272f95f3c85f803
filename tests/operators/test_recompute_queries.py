"""Recomputing any view, without state or filling it, against the query."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.nodes import depends_on_time
from relstate_dagster.state_lib.errors import StateError
from tests.operators.histories import drawn_history, epochs_of
from tests.operators.lab import Lab
from tests.operators.test_differential import QUERIES

#: Queries that are tried by default, drawn once; the others are, like more seeds, for the night.
_BY_DAY = frozenset(random.Random(1).sample(sorted(QUERIES), 14))


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        pytest.param(name, seed, marks=() if name in _BY_DAY and not seed else pytest.mark.nightly)
        for name in QUERIES
        for seed in range(3)
    ],
)
def test_all_rows_of_any_plan(spark: SparkSession, name: str, seed: int) -> None:
    """Twice without state, then with it, then changes are followed again."""
    with Lab(spark, QUERIES[name], collect_shared=seed != 1) as lab:
        if depends_on_time(lab.plan):
            pytest.skip("rows that change by time are followed always")
        for n, changes in enumerate(epochs_of(drawn_history(seed, epochs=6))):
            if n in (1, 2):
                lab.recompute(changes)
            elif n == 3:
                try:
                    lab.recompute(changes, fills=True)
                except StateError as error:
                    if "by ids that they were given" not in str(error):
                        raise
                    return
            else:
                lab.step(changes)
            lab.check()
