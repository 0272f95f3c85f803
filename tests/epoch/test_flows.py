"""The rows that an epoch says went along the edges of a plan are those that went."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.plan.epoch_rows import Flow
from relstate_dagster.jobs.plan.nodes import PlanNode
from relstate_dagster.jobs.plan.picture import plan_svg
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.view_epoch import view_epoch
from relstate_dagster.jobs.view_epoch.reports import ViewReport
from relstate_dagster.state_lib.constants import WEIGHT
from tests.epoch.scripts import Script
from tests.sizes import Resized

_TABLES = """
CREATE TABLE orders (id INT, customer INT, amount INT, PRIMARY KEY (id));
CREATE TABLE customers (customer INT, segment STRING, PRIMARY KEY (customer));
INSERT INTO orders SELECT id, id % 7, id FROM range(60);
INSERT INTO customers SELECT id, concat('s', id % 2) FROM range(5);
CREATE MATERIALIZED VIEW segments AS SELECT segment, count(*) AS n, max(amount) AS most
  FROM orders LEFT JOIN customers USING (customer) WHERE amount > 1 GROUP BY segment HAVING count(*) > 2;
CREATE MATERIALIZED VIEW best AS SELECT segment, n FROM segments ORDER BY n DESC, segment LIMIT 2;
CREATE MATERIALIZED VIEW each AS SELECT id, amount + 1 AS more FROM orders;
"""
_CHANGES = (
    "UPDATE orders SET amount = amount + 1 WHERE id % 10 = 0; INSERT INTO orders VALUES (100, 3, 9)",
    "DELETE FROM orders WHERE id < 6",
    "UPDATE customers SET segment = 's9' WHERE customer = 3",
)


def _applied(spark: SparkSession, script: Script, report: ViewReport) -> list:
    """Keys of the view's published table that an epoch has changed."""
    changed = spark.read.option("readChangeFeed", True).option("startingVersion", report.view_version)
    if report.skipped or not (report.rows_inserted or report.rows_deleted):
        return []
    rows = changed.format("delta").load(script.warehouse.target(report.view).path)
    return rows.where(f"_commit_version = {report.view_version}").select("_key").distinct().collect()


@pytest.mark.parametrize(("driver_holds", "strict"), [(True, False), (False, False), (False, True)])
def test_flows_are_what_spark_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resized: Resized, *, driver_holds: bool, strict: bool
) -> None:
    known: list[int] = []
    held_flows, check_change_sets = view_epoch.held_flows, view_epoch.check_change_sets

    def held(ctx: EpochContext, root: PlanNode) -> dict[PlanNode, Flow]:
        return checked(held_flows(ctx, root), ctx.changes)

    def counted(changes: Mapping[PlanNode, RowSet | None], view: str, epoch: int) -> dict[PlanNode, Flow]:
        found = check_change_sets(changes, view, epoch)
        assert found.keys() == changes.keys()
        return checked(found, changes)

    def checked(found: dict[PlanNode, Flow], given: Mapping[PlanNode, RowSet | None]) -> dict[PlanNode, Flow]:
        for node, (inserted, deleted) in found.items():
            changes = given[node]
            if changes is None:
                assert (inserted, deleted) == (0, 0)
                continue
            signs = [F.sum(F.expr(f"greatest({sign}{WEIGHT}, 0)")).alias(name) for sign, name in (("", "plus"), ("-", "minus"))]
            row = changes.frame.agg(*signs).first()
            assert row is not None
            plus, minus = row.plus or 0, row.minus or 0
            # What cancels may be gone from what was shared.
            assert inserted - deleted == plus - minus
            assert inserted <= plus
        known.append(len(found))
        return found

    monkeypatch.setattr(view_epoch, "held_flows", held)
    monkeypatch.setattr(view_epoch, "check_change_sets", counted)
    if not driver_holds:
        resized(driver_change_bytes=0)
    script = Script(spark, tmp_path / "warehouse")
    script.run(_TABLES)
    for change in _CHANGES:
        script.run(change)
        reports = {report.view: report for report in EpochRunner(spark, script.warehouse).run(strict=strict)}
        for report in reports.values():
            labels = re.findall(r">([^<]* rows?|[^<]* written)<", report.picture)
            assert labels if not report.skipped else not report.picture
            if strict:
                edges = len(re.findall("<path[^>]* d=.M[^>]*C", report.picture))
                assert sum("written" not in label for label in labels) == edges, report.picture
            entry = script.warehouse.read().views[report.view]
            if not report.skipped:
                assert plan_svg(entry.plan, entry.node_tables, entry.rows) == report.picture, "what explain --svg draws later"
            if report.rows_inserted or report.rows_deleted:
                parts = [f"{sign}{n}" for sign, n in (("+", report.rows_inserted), ("−", report.rows_deleted)) if n]
                assert any(label.startswith(" ".join(parts)) for label in labels), labels
                assert report.spark_jobs
            if not report.skipped:
                state = spark.read.format("delta").load(script.warehouse.state_path(entry))
                assert (report.state_rows, report.bytes_in > 0) == (state.count(), True)
            assert len(report.changed.rows) == min(5, len(_applied(spark, script, report)))
        script.verify()
    assert max(known) >= (3 if driver_holds else 0)
