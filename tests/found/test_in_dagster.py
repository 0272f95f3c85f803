"""Findings from outside use, by way of Dagster: names in any case, and a view that cannot be planned any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dagster import DagsterInstance
from pyspark.sql import SparkSession

from relstate_dagster.code_location import build_definitions

_SOURCE = "CREATE TABLE Orders (Id INT, Customer STRING, `Cents` BIGINT, PRIMARY KEY (id));"
_SUMS = "CREATE MATERIALIZED VIEW PerCustomer AS SELECT customer, sum(cents) AS cents FROM ORDERS GROUP BY customer;"
_OVER = "CREATE MATERIALIZED VIEW Large AS SELECT customer FROM percustomer WHERE cents > 10;"
_OTHERS = "CREATE MATERIALIZED VIEW Counts AS SELECT count(*) AS n FROM orders;"


class _Project:
    def __init__(self, spark: SparkSession, folder: Path, instance: DagsterInstance) -> None:
        self._folder, self._instance = folder, instance
        self.spark, self.warehouse = spark, folder / "warehouse"
        (folder / "project").mkdir()

    def write(self, *statements: str) -> None:
        (self._folder / "project" / "views.sql").write_text("\n".join(statements))

    def run(self, job: str = "refresh_views", op: str = "materialized_views", **config: Any) -> tuple[bool, set[str], str]:
        """Whether a job succeeds, the assets that it materializes, and its errors."""
        repository = build_definitions(self._folder / "project", warehouse=self.warehouse).get_repository_def()
        given = {"ops": {op: {"config": config}}} if config else {}
        done = repository.get_job(job).execute_in_process(run_config=given, instance=self._instance, raise_on_error=False)
        keys = {event.asset_key.to_user_string() for event in done.get_asset_materialization_events()}
        return done.success, keys, str([e.step_failure_data.error for e in done.all_events if e.is_step_failure])

    def rows(self, view: str) -> list[tuple[Any, ...]]:
        frame = self.spark.read.format("delta").load(f"{self.warehouse}/views/{view}").drop("_key")
        return sorted(map(tuple, frame.collect()))


def test_names_are_found_in_any_case_and_shown_as_declared(spark: SparkSession, tmp_path: Path) -> None:
    with DagsterInstance.ephemeral() as instance:
        project = _Project(spark, tmp_path, instance)
        project.write(_SOURCE, _SUMS, _OVER, _OTHERS)
        everything = {"PerCustomer", "Large", "Counts"}
        assert project.run()[:2] == (True, everything)
        spark.sql(f"INSERT INTO delta.`{project.warehouse}/sources/Orders` VALUES (1, 'ann', 20), (2, 'bob', 5)")
        assert project.run(until_version={"ORDERS": 1})[:2] == (True, everything)
        assert project.rows("Large") == [("ann",)]
        assert project.run(full_refresh=["percustomer"])[1] >= {"PerCustomer", "Large"}
        assert project.run("maintain_state", "compact_and_vacuum", views=["LARGE"])[0]
        success, _, errors = project.run(full_refresh=["per_customer"])
        assert not success
        assert "the project has no view per_customer; there are" in errors


def test_a_view_that_cannot_be_planned_after_an_edit_fails_alone(spark: SparkSession, tmp_path: Path) -> None:
    with DagsterInstance.ephemeral() as instance:
        project = _Project(spark, tmp_path, instance)
        project.write(_SOURCE, _SUMS, _OVER, _OTHERS)
        assert project.run()[0]
        project.write(_SOURCE, _SUMS.replace("AS cents", "AS total"), _OVER, _OTHERS)
        spark.sql(f"INSERT INTO delta.`{project.warehouse}/sources/Orders` VALUES (1, 'ann', 20)")
        success, done, errors = project.run()
        assert not success
        assert done == {"PerCustomer", "Counts"}
        assert "`cents` cannot be resolved" in errors
        assert project.rows("PerCustomer") == [("ann", 20)]
        project.write(_SOURCE, _SUMS, _OVER, _OTHERS)
        assert project.run()[0]
        assert project.rows("Large") == [("ann",)]
