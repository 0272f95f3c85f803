"""The stages of an epoch: planned from sizes, run as planned, and shown by explain and by the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.epoch.next_epoch import next_stages
from relstate_dagster.jobs.epoch.reports import ViewReport
from relstate_dagster.jobs.epoch.runner import EpochRunner
from relstate_dagster.jobs.epoch.sessions import Workload, session_for
from relstate_dagster.jobs.epoch.stages import Read, Sizes, Writer, stages_of
from relstate_dagster.state_lib.row_width import RowWidth
from relstate_dagster.state_lib.size_settings import Sizing
from tests.epoch.scripts import Script
from tests.sizes import Resized

_SETUP = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
CREATE TABLE ev (g INT, v INT);
INSERT INTO t SELECT id, id % 10, id FROM range(100);
INSERT INTO ev VALUES (1, 1), (2, 2);
CREATE MATERIALIZED VIEW sums AS SELECT g, sum(v) AS s, max(v) AS m FROM t GROUP BY g;
CREATE MATERIALIZED VIEW of_sums AS SELECT m, count(*) AS n FROM sums GROUP BY m;
CREATE MATERIALIZED VIEW pairs AS SELECT ev.v, t.k FROM ev JOIN t ON ev.g = t.g;
"""
_MB = 1024 * 1024
_LIMITS = Sizing()


class _View:
    """What stages ask of a view."""

    strategy = "incremental"


def _stages(*, full: bool = False, driver_writes: bool = True, **sizes: Any) -> Any:
    view: Any = _View()
    view.strategy = "full" if full else "incremental"
    known = replace(Sizes(False, ()), **{k: v for k, v in sizes.items() if k != "changed"})
    changed = sizes.get("changed", 0)
    known = replace(known, reads=(Read("t", "files", changed, row_count=changed, width=RowWidth(1, 1)),))
    return stages_of(view, known, most_tasks=8, driver_writes=driver_writes)


def test_who_computes_and_writes_follows_the_sizes() -> None:
    limit = _LIMITS.driver_change_bytes
    small, large = _stages(changed=limit), _stages(changed=limit + 1)
    assert (small.is_held, small.commit, small.publish) == (True, Writer.DRIVER, Writer.DRIVER)
    assert (large.is_held, large.commit, large.publish) == (False, Writer.SPARK, None)
    assert (small.lookup_hint, large.lookup_hint) == ("broadcast", None)
    assert large.publishes(_LIMITS.driver_commit_rows) is Writer.DRIVER
    assert large.publishes(_LIMITS.driver_commit_rows + 1) is Writer.SPARK


def test_code_is_compiled_where_much_is_read() -> None:
    limit, looked_up = _LIMITS.interpreted_values, _LIMITS.interpreted_lookup_rows
    assert _stages(changed=limit, looked_up_rows=looked_up).workload is Workload.SMALL
    assert _stages(changed=limit + 1).workload is Workload.LARGE
    assert _stages(looked_up_rows=looked_up + 1).workload is Workload.LARGE
    assert _stages(changed=limit, is_backfill=True, looked_up_rows=looked_up + 1).workload is Workload.SMALL
    assert _stages(changed=limit + 1, is_backfill=True).workload is Workload.FULL
    assert _stages(full=True).workload is Workload.FULL


def test_a_backfill_is_held_only_if_it_is_small() -> None:
    small = _stages(changed=_LIMITS.driver_backfill_bytes, is_backfill=True)
    large = _stages(changed=_LIMITS.driver_backfill_bytes + 1, is_backfill=True)
    assert (small.is_held, large.is_held) == (True, False)
    assert _stages(changed=_LIMITS.driver_change_bytes + 1, is_backfill=True).commit is None, "it may come to little"


def test_large_tables_are_merged_into_by_spark() -> None:
    limit = _LIMITS.driver_publish_bytes
    assert _stages().for_target(limit).publish is Writer.DRIVER
    assert _stages().for_target(limit + 1).publish is Writer.SPARK
    assert _stages(only_inserts=True).for_target(limit + 1).publish is Writer.DRIVER
    assert _stages(replaces=True).for_target(1).publish is Writer.SPARK
    assert _stages(driver_writes=False).for_target(1).publish is Writer.SPARK
    assert _stages().for_target(1, driver_writes=False).publish is Writer.SPARK


def test_what_an_earlier_try_has_committed_is_only_published() -> None:
    stages = _stages(is_committed=True, is_backfill=True, looked_up_rows=_LIMITS.interpreted_lookup_rows + 1)
    assert stages.workload is Workload.LARGE
    assert stages.lines() == ("commit state: done by an earlier try", "publish: merge, by the driver; append where no row goes")


def test_tasks_divide_the_change() -> None:
    assert _stages(changed=3 * _LIMITS.task_bytes).shuffle_tasks == 4
    assert _stages(changed=50 * _LIMITS.task_bytes).shuffle_tasks == 8
    assert _stages(changed=50 * _LIMITS.task_bytes, is_backfill=True).shuffle_tasks is None


def _explained(script: Script, name: str) -> list[str]:
    ((text,),) = script.rows(f"EXPLAIN MATERIALIZED VIEW {name}")
    return [line.strip() for line in text.split("next epoch:\n")[1].splitlines()]


def _run(spark: SparkSession, script: Script, *views: str) -> dict[str, ViewReport]:
    runner = EpochRunner(spark, script.warehouse)
    return {report.view: report for report in runner.run(list(views) or None)}


def test_an_epoch_runs_as_explained(spark: SparkSession, script: Script) -> None:
    script.begin(_SETUP)
    for name in ("sums", "of_sums", "pairs"):
        assert _explained(script, name) == ["nothing to do: nothing that it reads has changed"]
    script.run("UPDATE t SET v = v + 1000 WHERE k < 3; INSERT INTO ev VALUES (3, 3)")
    explained = {name: _explained(script, name) for name in ("sums", "pairs")}
    reports = _run(spark, script)
    for name, lines in explained.items():
        way = {"sums": "merge", "pairs": "append"}[name]
        assert lines[-1].replace("merge", way) == f"{reports[name].stages[-1]}; append where no row goes"
        assert list(reports[name].stages[:-1]) == lines[:-1]
    assert [line.split(",")[0] for line in explained["pairs"][:2]] == [
        "read ev: 1 file(s) with the changes",
        "read t: 1 file(s) with the changes",
    ]
    assert "+3 −3 rows" in explained["sums"][0]
    assert explained["sums"][-2] == "commit state: by the driver"
    # Three groups changed: each an old row and a new one.
    assert reports["of_sums"].stages[0].startswith("read sums: its change log, ")
    assert reports["of_sums"].stages[0].endswith(", +3 −3 rows")
    script.verify()


def test_sizes_are_rows_and_columns_and_not_compressed_bytes(spark: SparkSession, script: Script) -> None:
    columns = ", ".join(f"'the same in all rows' AS c{n}" for n in range(20))
    script.run(f"CREATE TABLE wide (k BIGINT, {', '.join(f'c{n} STRING' for n in range(20))})")
    script.run(f"INSERT INTO wide SELECT id, {columns} FROM range(3000)")
    assert sum(file.stat().st_size for file in Path(script.warehouse.source_path("wide")).glob("*.parquet")) < 100_000
    script.run(
        "CREATE MATERIALIZED VIEW all_columns AS SELECT * FROM wide; CREATE MATERIALIZED VIEW two AS SELECT k, c1 FROM wide"
    )
    script.run("CREATE MATERIALIZED VIEW over AS SELECT * FROM all_columns")
    state = script.warehouse.read()
    built = {name: next_stages(script.warehouse, state, state.views[name].restarted(), most_tasks=2) for name in state.views}
    code = {name: next(line for line in lines if line.startswith("compute: ")) for name, lines in built.items()}
    assert "code generated" in code["all_columns"]
    assert "code generated" in code["over"], "of views that are read as well"
    assert "expressions interpreted" in code["two"]


@pytest.mark.parametrize("workload", Workload)
def test_no_session_infers_constraints(spark: SparkSession, workload: Workload) -> None:
    """Over wide projections of projections Spark made millions of expressions of them."""
    session = session_for(spark, {}, workload)
    wide = session.range(10).selectExpr(*(f"id + {n} AS c{n}" for n in range(20))).where("c1 > 3")
    plan = wide.join(wide.select("c2"), "c2")._jdf.queryExecution().optimizedPlan().toString()
    assert "isnotnull" not in plan


def test_views_that_are_read_have_a_size(spark: SparkSession, tmp_path: Path, resized: Resized) -> None:
    """A view over a view was planned as if nothing were read: a backfill of any size on the driver."""
    script = Script(spark, tmp_path / "warehouse")
    script.run(_SETUP.rsplit("CREATE", 2)[0])
    resized(driver_backfill_bytes=0, driver_change_bytes=0, driver_commit_rows=0)
    script.run("CREATE MATERIALIZED VIEW of_sums AS SELECT m, count(*) AS n FROM sums GROUP BY m")
    view = script.warehouse.read().views["of_sums"]
    script.run("UPDATE t SET v = v + 1000 WHERE k < 3")
    reports = _run(spark, script)
    for report in reports.values():
        assert "compute: change sets computed by Spark, " in "\n".join(report.stages)
        assert "commit state: by Spark" in report.stages
    assert _backfilled_by_spark(script, view)
    # Left alone for two epochs: how much its view has changed is read from the log.
    for n in range(2):
        script.run(f"UPDATE t SET v = v + 1 WHERE k = {n}")
        _run(spark, script, "sums")
    ((line, *_),) = [_explained(script, "of_sums")]
    assert line.startswith("read sums: its change log, ")
    _run(spark, script, "of_sums")
    script.verify()


def _backfilled_by_spark(script: Script, view: ViewEntry) -> bool:
    from relstate_dagster.state_lib.lake.log import DeltaLog, commit_info

    path = script.warehouse.state_path(view)
    return "Spark" in str(commit_info(DeltaLog(path).commit(1)).get("engineInfo"))


def test_explain_says_what_cannot_run(spark: SparkSession, script: Script) -> None:
    script.begin(_SETUP)
    state = script.warehouse.read()
    source = Path(script.warehouse.source(state.sources["t"]).path)
    source.rename(source.parent / "elsewhere")
    (line,) = next_stages(script.warehouse, state, state.views["sums"], most_tasks=2)
    assert line.startswith("cannot run: ")
    assert "t" in line


@pytest.mark.parametrize("name", ["sums", "of_sums"])
def test_a_new_view_is_explained_as_a_backfill(script: Script, name: str) -> None:
    script.begin(_SETUP)
    state = script.warehouse.read()
    view = state.views[name].restarted()
    lines = next_stages(script.warehouse, state, view, most_tasks=2)
    assert lines[0].startswith("read sums: all rows of the view, " if name == "of_sums" else "read t: all rows, ")
    assert any(line.startswith("publish: ") for line in lines)
