"""A short slice of what ``python -m tests.random_queries.soak`` runs for as long as one likes."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.random_queries.soak import Counts, drawn, run_view


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_random_queries_over_random_changes(spark: SparkSession, seed: int) -> None:
    counts = Counts()
    of = drawn(seed, views=4, depth=4)
    for query in of.queries:
        run_view(spark, query, of, counts)
    assert not counts.failures, "\n\n".join(counts.failures)
    assert counts.query_epochs


def test_rounds_are_the_same_for_a_seed_and_differ_between_seeds() -> None:
    assert drawn(7, views=3, depth=4) == drawn(7, views=3, depth=4)
    assert drawn(7, views=3, depth=4) != drawn(8, views=3, depth=4)
