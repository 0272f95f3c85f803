"""OpenLineage events of a run in Dagster, by dagster-openlineage: what ``docs/metrics.md`` shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance
from pyspark.sql import SparkSession

from relstate_dagster.code_location import build_definitions

_PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
_DECLARATIONS = """
CREATE TABLE orders (id INT, customer STRING, amount DECIMAL(10,2), PRIMARY KEY (id));
CREATE MATERIALIZED VIEW sales_by_customer (customer COMMENT 'who bought', sales, amount)
  TBLPROPERTIES ('check.named.not_null' = 'customer')
  AS SELECT customer, count(*) AS sales, sum(amount) AS amount FROM orders GROUP BY customer;
CREATE MATERIALIZED VIEW largest AS SELECT max(amount) AS amount FROM sales_by_customer;
"""


def _shown() -> list[str]:
    """Blocks of the page: settings of the instance and of the environment, and an event."""
    section = _PAGE.read_text(encoding="utf-8").split("## OpenLineage")[1].split("\n## ")[0]
    return re.findall(r"^```\w+\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def epochs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, Any]]]:
    """Events of a run after two orders, and of one with nothing to do."""
    project, home, log = tmp_path / "project", tmp_path / "home", tmp_path / "events.jsonl"
    for folder in (project, home):
        folder.mkdir()
    (project / "views.sql").write_text(_DECLARATIONS)
    (home / "dagster.yaml").write_text(_shown()[0].replace("/path/to/dagster_home", str(home)))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps({"type": "file", "log_file_path": str(log), "append": True}))
    job = build_definitions(project, warehouse=tmp_path / "warehouse").get_repository_def().get_job("refresh_views")
    with DagsterInstance.from_config(str(home)) as instance:
        assert job.execute_in_process(instance=instance).success
        spark.sql(f"INSERT INTO delta.`{tmp_path}/warehouse/sources/orders` VALUES (1, 'ann', 9.5), (2, 'bob', 20)")
        found = []
        for _ in range(2):
            log.unlink()
            assert job.execute_in_process(instance=instance).success
            found.append([json.loads(line) for line in log.read_text().splitlines()])
    return found


def _has(found: Any, wanted: Any) -> bool:
    """Whether a value has the shown parts. A list has one element for each."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and _has(found[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and all(any(_has(one, value) for one in found) for value in wanted)
    return bool(found == wanted)


def _of_views(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if "job" in event and not event["job"]["name"].endswith("__checks")]


def _kinds(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((event["eventType"], event["job"]["name"]) for event in _of_views(events))


def test_events_of_an_epoch(epochs: list[list[dict[str, Any]]]) -> None:
    changed, unchanged = epochs
    for text in _shown()[2:]:
        wanted = json.loads(text)
        assert any(_has(event, wanted) for event in changed), f"no event as {text}, but {json.dumps(changed, indent=1)}"
    of_each = {kind: [(kind, name) for name in ("largest", "sales_by_customer")] for kind in ("COMPLETE", "START")}
    assert _kinds(changed) == of_each["COMPLETE"] + of_each["START"]
    assert _kinds(unchanged) == of_each["START"]
    assert not any(event["inputs"] for event in _of_views(changed)), "a limit that the page names is gone"
    assert [event["dataset"]["name"] for event in changed if "dataset" in event] == ["orders"]
