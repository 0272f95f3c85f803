"""The examples of docs/state.md, run: queries give the tables printed below them, Python and commands show a view's state."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from stores import created, table
from typer.testing import CliRunner

from relstate_dagster.cli import app
from relstate_dagster.state_lib.errors import DeclarationError
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


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("w")
    Script(spark, folder).run(_VIEW)
    return folder


def test_the_python_example(spark: SparkSession, warehouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    exec(block.replace("my_warehouse", str(warehouse)), {"spark": spark})
    shown = capsys.readouterr().out
    assert "sum(n) value state" in shown
    assert re.search(r"\|Bergen *\| *5\|", shown), shown
    # The last rows shown are the one of the key.
    assert "Bergen" not in shown[shown.rindex("|city") :]
    assert "Oslo" in shown[shown.rindex("|city") :]


def _relstate(warehouse: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments, "--warehouse", str(warehouse)])
    if done.exception is not None:
        raise done.exception
    return done.output


def test_the_shell_examples(spark: SparkSession, warehouse: Path) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", DOCS.read_text(), re.DOTALL)
    by_key, by_prefix = (_relstate(warehouse, *shlex.split(line)[1:]) for line in block.splitlines())
    assert "Oslo" in by_key
    assert "Bergen" not in by_key
    assert [json.loads(line) for line in by_prefix.splitlines() if line.startswith("{")] == [{"_sum": 12}]
    listed = [json.loads(line) for line in _relstate(warehouse, "state", "trips_by_city", "--format", "json").splitlines()]
    assert listed[0]["storage primary key"] == "city"


def test_the_command_line_says_what_is_wrong(spark: SparkSession, warehouse: Path) -> None:
    with pytest.raises(DeclarationError, match=r"rows are of one state table: .* trips_by_city has 1, 2"):
        _relstate(warehouse, "state", "trips_by_city", "--key", '["Oslo"]')
    with pytest.raises(DeclarationError, match=r"key column city of sum\(n\) is of type STRING, not 5"):
        _relstate(warehouse, "state", "trips_by_city", "1", "--key", "[5]")
    with pytest.raises(DeclarationError, match="has no column a,b"):
        _relstate(warehouse, "state", "trips_by_city", "1", "--columns", "city,`a,b`")
