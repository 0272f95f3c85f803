"""State that has lost rows: what follows from it is an error, and no wrong row."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from relstate_dagster.state_lib.errors import StateError
from tests.operators.lab import Lab, decimal

_T1, _T2 = (1, 1, "a", decimal(1)), (2, 2, "b", decimal(2))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT t.k, t.s, r.w FROM t LEFT JOIN r ON t.g = r.g",
        "SELECT t.k FROM t WHERE EXISTS (SELECT 1 FROM r WHERE r.g = t.g)",
        "SELECT t.k FROM t WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.g = t.g)",
    ],
    ids=["outer", "semi", "anti"],
)
def test_a_record_that_was_retracted_without_being_there(spark: SparkSession, query: str) -> None:
    lab = Lab(spark, query)
    lab.step({"t": [(_T1, 1), (_T2, 1)], "r": [((7, 2, 70), 1)]})
    lab._end_last_check()
    (left,) = [desc.table_id for desc in lab.descs if desc.schema.label == "left"]
    table = DeltaTable(lab._store.path)
    table.delete(f"table_id = {left}")
    lab._version = table.version()
    lab.step({"t": [(_T1, -1)]})
    with pytest.raises(
        PySparkException, match=r"epoch 3: a record of the left side of a join \(table_id \d+; .*= 1.*--full-refresh"
    ):
        lab.step({"r": [((8, 1, 80), 1)]})
    lab._last_check = None
    lab.close()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT t.k, t.s, r.w FROM t LEFT JOIN r ON t.g = r.g",
        "SELECT x.k, e.s FROM (SELECT t.k, t.g, r.w FROM t LEFT JOIN r ON t.k = r.k) x JOIN e ON x.g = e.g",
    ],
    ids=["outer", "inner"],
)
def test_strict_mode_finds_it_in_the_epoch_that_retracts(spark: SparkSession, query: str) -> None:
    lab = Lab(spark, query, strict=True)
    lab.step({"t": [(_T1, 1), (_T2, 1)], "r": [((7, 2, 70), 1)]})
    lab._end_last_check()
    left = [desc.table_id for desc in lab.descs if desc.schema.label == "left"][-1]
    table = DeltaTable(lab._store.path)
    table.delete(f"table_id = {left}")
    lab._version = table.version()
    with pytest.raises(StateError, match=r"strict mode: .*'k': 1.* of state table left \(table_id \d+\) is not what"):
        lab.step({"t": [(_T1, -1)]})
    lab._last_check = None
    lab.close()
