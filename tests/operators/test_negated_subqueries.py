"""IN and NOT IN below NOT, comparisons and functions, with NULLs on both sides: as Spark has it, in every epoch."""

from __future__ import annotations

from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from tests.operators.histories import epochs_of
from tests.operators.lab import Lab

_IN: Final = "g IN (SELECT g FROM r)"
_NOT_IN: Final = "g NOT IN (SELECT g FROM r)"
_CONDITIONS: Final = (
    f"NOT ({_NOT_IN})",
    f"NOT ({_IN} AND k > 1)",
    f"NOT ({_NOT_IN} OR k > 4)",
    f"NOT ({_NOT_IN} AND k > 4)",
    f"NOT (NOT ({_NOT_IN}))",
    f"({_NOT_IN}) = false",
    f"false <> ({_NOT_IN})",
    f"(({_NOT_IN}) = false) = true",
    f"({_IN}) = (k > 2)",
    f"({_NOT_IN}) <> (k > 2)",
    f"({_IN}) IS NOT TRUE",
    f"({_NOT_IN}) IS NOT TRUE",
    f"({_NOT_IN}) IS NULL",
    f"({_IN}) <=> NULL",
    f"IF({_NOT_IN}, false, true)",
    f"CASE WHEN {_NOT_IN} THEN false ELSE true END",
    f"coalesce({_NOT_IN}, true)",
    f"NOT (EXISTS (SELECT 1 FROM r WHERE r.g = t.g) AND {_NOT_IN})",
    "NOT (g NOT IN (SELECT w FROM r WHERE r.g = t.g) OR s = 'b')",
    "NOT ((k, g) NOT IN (SELECT w, g FROM r))",
    f"{_NOT_IN} OR NOT (k NOT IN (SELECT w FROM r))",
    f"NOT (k > 1 AND NOT ({_NOT_IN} AND s = 'a'))",
    "NOT EXISTS (SELECT 1 FROM r) OR NOT (g NOT IN (SELECT w FROM r))",
)
_HISTORY: list[list[Any]] = [
    [
        ("t", 1, (1, "a", None)),
        ("t", 2, (None, "b", None)),
        ("t", 4, (2, "ab", None)),
        ("t", 5, (3, "a", None)),
        ("r", 1, (1, 1)),
        ("r", 2, (None, 5)),
    ],
    [("r", 2, None), ("r", 3, (2, 2))],
    [("r", 4, (None, 7)), ("t", 4, None), ("t", 6, (7, "b", None))],
    [("r", 1, None), ("r", 3, None), ("r", 4, None)],
    [("r", 9, (7, None))],
]


@pytest.mark.parametrize("first", range(0, len(_CONDITIONS), 4))
def test_conditions_on_subqueries_with_nulls(spark: SparkSession, first: int) -> None:
    some = list(enumerate(_CONDITIONS))[first : first + 4]
    query = " UNION ALL ".join(f"SELECT {n} AS n, k FROM t WHERE {condition}" for n, condition in some)
    with Lab(spark, query) as lab:
        for changes in epochs_of(_HISTORY):
            lab.step(changes)
            lab.check()


@pytest.mark.parametrize("first", range(0, len(_CONDITIONS), 8))
def test_values_of_subqueries_with_nulls(spark: SparkSession, first: int) -> None:
    columns = ", ".join(f"{condition} AS c{n}" for n, condition in enumerate(_CONDITIONS[first : first + 8]))
    with Lab(spark, f"SELECT k, {columns} FROM t") as lab:
        for changes in epochs_of(_HISTORY):
            lab.step(changes)
            lab.check()
