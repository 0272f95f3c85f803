"""State that has lost rows: what follows from it is an error, and no wrong row."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

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
