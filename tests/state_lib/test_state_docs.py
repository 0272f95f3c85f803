"""The examples of docs/state.md, run: each query gives the table printed below it, and the Python shows a view's state."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from stores import created, table

from relstate_dagster.state_lib.table_schema import MergeRule
from tests.epoch.scripts import Script

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs" / "state.md"
EXAMPLE = re.compile(r"```sql\n(.*?)```\n\n((?:\|[^\n]*\n)+)", re.DOTALL)


def test_state_is_queried_with_plain_sql(spark: SparkSession, tmp_path: Path) -> None:
    places = table(1, "id bigint; city string", ["id"], MergeRule.SUM, label="right")
    totals = table(3, "city string; total bigint", ["city"], label="sum(n)", vnode_count=2)
    store = created(spark, tmp_path, places, totals)
    epochs = {
        1: ("(1L, 'Oslo', 1L), (2L, 'Paris', 1L)", "('Oslo', 10L, 1L), ('Paris', 5L, 1L)"),
        # The place 2 turns out to be in Bergen, and Oslo has a trip more.
        2: ("(2L, 'Paris', -1L), (2L, 'Bergen', 1L)", "('Oslo', 12L, 1L), ('Paris', 5L, -1L), ('Bergen', 5L, 1L)"),
    }
    for epoch, (place_rows, total_rows) in epochs.items():
        right, sums = store.state_table(1, epoch=epoch), store.state_table(3, epoch=epoch)
        right.write(spark.sql(f"SELECT * FROM VALUES {place_rows} t(id, city, _weight)"))
        sums.write(spark.sql(f"SELECT * FROM VALUES {total_rows} t(city, total, _weight)"))
        mem_tables = [right.mem_table, sums.mem_table]
        store.append(epoch, mem_tables, txn_app_id="v", txn_version=epoch, user_metadata=str(epoch))

    examples = EXAMPLE.findall(DOCS.read_text())
    assert len(examples) == 4
    for query, printed in examples:
        expected = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in printed.splitlines()]
        frame = spark.sql(query.replace("/path/to/state", store.path))
        assert [frame.columns, *([str(value) for value in row] for row in frame.collect())] == [expected[0], *expected[2:]]


_VIEW = """
CREATE TABLE trips (k INT, city STRING, n INT, PRIMARY KEY (k));
INSERT INTO trips VALUES (1, 'Oslo', 10), (2, 'Oslo', 2), (3, 'Bergen', 5);
CREATE MATERIALIZED VIEW trips_by_city AS SELECT city, sum(n) AS total FROM trips GROUP BY city;
"""


def test_the_python_example(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Script(spark, tmp_path / "w").run(_VIEW)
    (block,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    exec(block.replace("my_warehouse", str(tmp_path / "w")), {"spark": spark})
    shown = capsys.readouterr().out
    assert "sum(n) value state" in shown
    assert re.search(r"\|Bergen *\| *5\|", shown), shown
