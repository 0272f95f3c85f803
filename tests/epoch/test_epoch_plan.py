"""Plans of epochs: steps planned from sizes, run as planned, and shown as they ran."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.engine.workloads import Workload, session_for
from relstate_dagster.jobs.plan.new_state import Recompute
from relstate_dagster.jobs.run.preview import preview_view
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.targets.protocol import TargetFound
from relstate_dagster.jobs.view_epoch.findings import ChangeFound, StateFound
from relstate_dagster.jobs.view_epoch.plan import (
    AllRows,
    ViewSizes,
    plan_escalation,
    plan_large_commit,
    plan_view_epoch,
)
from relstate_dagster.jobs.view_epoch.reports import ViewReport
from relstate_dagster.jobs.view_epoch.steps import Escalation, Read, ViewEpochPlan, WriteMode, Writer
from relstate_dagster.state_lib.lake.log import DeltaLog, commit_info, latest_commits
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
    """What a plan asks of a view."""

    strategy = "incremental"


def _plan(*, full: bool = False, published: TargetFound | None = None, **sizes: Any) -> ViewEpochPlan:
    view: Any = _View()
    view.strategy = "full" if full else "incremental"
    known = replace(ViewSizes(False, ()), **{k: v for k, v in sizes.items() if k != "changed"})
    changed = sizes.get("changed", 0)
    read = Read("t", "files", changed, None if changed else (0, 0), row_count=changed, width=RowWidth(1, 1))
    known = replace(known, reads=(read,), published=published)
    return plan_view_epoch(view, known, most_tasks=8, limits=_LIMITS)


_SMALL, _LARGE = _LIMITS.driver_change_bytes, _LIMITS.driver_change_bytes + 1
_VALUES, _ROWS = _LIMITS.interpreted_values, _LIMITS.interpreted_lookup_rows
_AGAIN = _LIMITS.interpreted_recomputed_rows
_HELD = _LIMITS.driver_backfill_bytes
_TABLE = _LIMITS.driver_publish_bytes
_D, _S = Writer.DRIVER, Writer.SPARK

#: Sizes, and how a view's epoch is done: engine, held, keys, tasks, who commits, who publishes, and how.
_DECIDED: list[tuple[dict[str, Any], tuple[object, ...]]] = [
    ({}, (Workload.SMALL, True, "shuffle_hash", 1, _D, _D, WriteMode.MERGE)),
    ({"changed": _VALUES}, (Workload.SMALL, True, "shuffle_hash", 1, _D, _D, WriteMode.MERGE)),
    ({"changed": _VALUES + 1}, (Workload.LARGE, True, "broadcast", 1, _D, _D, WriteMode.MERGE)),
    ({"looked_up_rows": _ROWS}, (Workload.SMALL, True, "shuffle_hash", 1, _D, _D, WriteMode.MERGE)),
    ({"looked_up_rows": _ROWS + 1}, (Workload.LARGE, True, "broadcast", 1, _D, _D, WriteMode.MERGE)),
    ({"recomputed_rows": _AGAIN}, (Workload.SMALL, True, "shuffle_hash", 1, _D, _D, WriteMode.MERGE)),
    ({"recomputed_rows": _AGAIN + 1}, (Workload.LARGE, True, "broadcast", 1, _D, _D, WriteMode.MERGE)),
    ({"recomputed_rows": 3 * _LIMITS.task_rows}, (Workload.LARGE, True, "broadcast", 4, _D, _D, WriteMode.MERGE)),
    ({"changed": _SMALL}, (Workload.LARGE, True, "broadcast", 8, _D, _D, WriteMode.MERGE)),
    ({"changed": _LARGE}, (Workload.LARGE, False, None, 8, _S, None, WriteMode.MERGE)),
    ({"changed": _LARGE, "only_inserts": True}, (Workload.LARGE, False, None, 8, _S, None, WriteMode.APPEND)),
    ({"changed": 3 * _LIMITS.task_bytes}, (Workload.LARGE, True, "broadcast", 4, _D, _D, WriteMode.MERGE)),
    # A backfill meets no state; it is held only if it is small, and may come to little.
    ({"is_backfill": True, "looked_up_rows": _ROWS + 1}, (Workload.SMALL, True, "shuffle_hash", 1, _D, _D, WriteMode.MERGE)),
    ({"is_backfill": True, "changed": _HELD}, (Workload.FULL, True, "shuffle_hash", None, _D, _D, WriteMode.MERGE)),
    ({"is_backfill": True, "changed": _HELD + 1}, (Workload.FULL, False, "shuffle_hash", None, None, None, WriteMode.MERGE)),
    ({"is_backfill": True, "changed": _LARGE}, (Workload.FULL, False, None, None, None, None, WriteMode.MERGE)),
    ({"is_slice": True, "changed": _VALUES + 1}, (Workload.FULL, True, "shuffle_hash", None, _D, _D, WriteMode.MERGE)),
    ({"full": True}, (Workload.FULL, True, "shuffle_hash", None, _D, _D, WriteMode.MERGE)),
    # Columns that the driver cannot write.
    ({"driver_writes_state": False}, (Workload.SMALL, True, "shuffle_hash", 1, _S, _D, WriteMode.MERGE)),
    ({"driver_writes_view": False}, (Workload.SMALL, True, "shuffle_hash", 1, _D, _S, WriteMode.MERGE)),
    ({"replaces": True}, (Workload.SMALL, True, "shuffle_hash", 1, _D, _S, WriteMode.OVERWRITE)),
    # The published table.
    ({"published": TargetFound(_TABLE, True)}, (Workload.SMALL, True, "shuffle_hash", 1, _D, _D, WriteMode.MERGE)),
    ({"published": TargetFound(_TABLE + 1, True)}, (Workload.SMALL, True, "shuffle_hash", 1, _D, _S, WriteMode.MERGE)),
    ({"published": TargetFound(1, False)}, (Workload.SMALL, True, "shuffle_hash", 1, _D, _S, WriteMode.MERGE)),
    (
        {"published": TargetFound(_TABLE + 1, True), "only_inserts": True},
        (Workload.SMALL, True, "shuffle_hash", 1, _D, _D, WriteMode.APPEND),
    ),
    (
        {"published": TargetFound(0, True, is_empty=True), "replaces": True},
        (Workload.SMALL, True, "shuffle_hash", 1, _D, None, WriteMode.APPEND),
    ),
]


@pytest.mark.parametrize(("sizes", "decided"), _DECIDED, ids=[str(sizes) for sizes, _ in _DECIDED])
def test_sizes_decide(sizes: dict[str, Any], decided: tuple[object, ...]) -> None:
    plan = _plan(**sizes)
    compute, publish = plan.compute, plan.publish
    found = (compute.engine, compute.holds, compute.lookup_hint, compute.shuffle_tasks, plan.commit.writer)
    assert (*found, publish.writer, publish.mode) == decided
    assert len(plan.lines()) >= 4


@pytest.mark.parametrize("sizes", [{}, {"is_backfill": True}, {"full": True}])
def test_many_rows_are_kept_as_bytes(sizes: dict[str, Any]) -> None:
    most = _LIMITS.driver_backfill_bytes if "is_backfill" in sizes else _LIMITS.object_rows_bytes
    few, many = (_plan(changed=most + more, **sizes) for more in (0, 1))
    assert (few.compute.keeps_bytes, many.compute.keeps_bytes) == (False, True)
    # Spark keeps what the driver does not hold.
    shown = [any("kept as bytes" in line for line in plan.lines()) for plan in (few, many)]
    assert shown == [False, not many.compute.holds]
    again = plan_escalation(few, few.compute.limits.held_bytes + 1, most_tasks=8)
    assert again.compute.keeps_bytes, "their number is unknown"


#: The published table, the change set as found, and how it is applied: by whom, and how.
_PUBLISHED: list[tuple[dict[str, Any], ChangeFound, tuple[Writer, WriteMode]]] = [
    ({}, ChangeFound(9, is_held=True, goes=True, key_bytes=1), (_D, WriteMode.MERGE)),
    ({}, ChangeFound(9, is_held=True, goes=False, key_bytes=0), (_D, WriteMode.APPEND)),
    ({}, ChangeFound(9, goes=True, key_bytes=1), (_S, WriteMode.REPLACE)),
    ({"changed": _LARGE}, ChangeFound(_LIMITS.driver_commit_rows, is_held=True, goes=True, key_bytes=1), (_D, WriteMode.MERGE)),
    ({"changed": _LARGE}, ChangeFound(_LIMITS.driver_commit_rows + 1, goes=True, key_bytes=None), (_S, WriteMode.MERGE)),
    ({"published": TargetFound(_TABLE + 1, True)}, ChangeFound(9, True, True, 1), (_S, WriteMode.REPLACE)),
    (
        {"published": TargetFound(_TABLE + 1, True)},
        ChangeFound(9, True, True, _LIMITS.replaced_key_bytes + 1),
        (_S, WriteMode.MERGE),
    ),
    ({"published": TargetFound(_TABLE + 1, True)}, ChangeFound(9, True, False, 0), (_D, WriteMode.APPEND)),
    ({"published": TargetFound(1, True, replaces=True)}, ChangeFound(9), (_S, WriteMode.OVERWRITE)),
    # A table of eight rows: all of them go, or not all, or their number is unknown.
    ({"published": TargetFound(_TABLE + 1, True, rows=8)}, ChangeFound(9, True, True, 1, 8), (_S, WriteMode.OVERWRITE)),
    ({"published": TargetFound(_TABLE + 1, True, rows=8)}, ChangeFound(9, gone_rows=8), (_S, WriteMode.OVERWRITE)),
    ({"published": TargetFound(_TABLE + 1, True, rows=8)}, ChangeFound(9, True, True, 1, 7), (_S, WriteMode.REPLACE)),
    ({"published": TargetFound(_TABLE + 1, True, rows=8)}, ChangeFound(9, gone_rows=7), (_S, WriteMode.MERGE)),
    ({"published": TargetFound(_TABLE + 1, True)}, ChangeFound(9), (_S, WriteMode.MERGE)),
    ({"published": TargetFound(_TABLE, True, rows=8)}, ChangeFound(9, True, True, 1, 8), (_D, WriteMode.MERGE)),
    ({"published": TargetFound(_TABLE + 1, True, rows=0)}, ChangeFound(9, gone_rows=0), (_S, WriteMode.MERGE)),
]


@pytest.mark.parametrize(("sizes", "found", "done"), _PUBLISHED, ids=[f"{s} {f}" for s, f, _ in _PUBLISHED])
def test_what_is_found_settles_how_a_view_is_published(
    sizes: dict[str, Any], found: ChangeFound, done: tuple[Writer, WriteMode]
) -> None:
    step = _plan(**sizes).publish.for_changes(found)
    assert (step.writer, step.mode) == done
    line = step.line()
    assert line.startswith(f"publish: {done[1].value}")
    assert line.endswith(f", by {done[0].value}"), "nothing is left open"


def test_an_earlier_try_is_only_published() -> None:
    plan = _plan(is_committed=True, is_backfill=True, looked_up_rows=_ROWS + 1)
    assert plan.publish.engine is Workload.LARGE
    assert plan.lines() == ("commit state: done by an earlier try", "publish: merge, by the driver; append where no row goes")


@pytest.mark.parametrize("is_backfill", [True, False])
def test_more_than_planned_replaces_the_remaining_steps(is_backfill: bool) -> None:
    plan = _plan(is_backfill=is_backfill)
    found = plan.compute.limits.held_bytes + 1
    again = plan_escalation(plan, found, most_tasks=8)
    assert again.steps[: len(plan.reads) + 1] == plan.steps[: len(plan.reads) + 1]
    assert _escalations(again) == [Escalation("compute", found, plan.compute.limits.held_bytes)]
    assert again.compute.engine is (Workload.FULL if is_backfill else Workload.LARGE)
    assert (again.commit.writer, again.publish.writer, again.compute.limits.is_final) == (None, None, True)
    assert again.lines()[: len(plan.reads) + 1] == plan.lines()[: len(plan.reads) + 1]
    later = plan_large_commit(again)
    assert [step.step for step in _escalations(later)] == ["compute", "commit"]
    assert later.commit.writer is Writer.SPARK


def test_state_to_be_filled_is_a_part_of_the_plan() -> None:
    lines = _plan(unfilled=frozenset({3, 2})).compute.lines()
    assert lines[1:] == (
        "fill: the state of nodes 2, 3 from all rows",
        "look up: in 0 B of state, 0 B of sources in place, keys hashed",
    )
    assert _plan(is_backfill=True).compute.new_state.is_all
    assert not _plan().compute.new_state.ids


_VIEW_ROWS, _LEAST, _SHARE = 1_000_000, _LIMITS.recompute_values, _LIMITS.recompute_share
_MANY = int(_SHARE * _VIEW_ROWS)
_FOLLOWED, _WITHOUT, _FILLED = None, Recompute.WITHOUT_STATE, Recompute.WITH_STATE

#: Changed values, facts about all rows, and what is computed.
_RECOMPUTED: list[tuple[int, dict[str, Any], Recompute | None]] = [
    (_MANY - 1, {}, _FOLLOWED),
    (_MANY, {}, _WITHOUT),
    # A small change is followed, however small the view is.
    (_LEAST - 1, {"rows_read": _LEAST, "rows": 1}, _FOLLOWED),
    (_LEAST, {"rows_read": _LEAST, "rows": 1}, _WITHOUT),
    # As many rows changed in the view's last epoch, for as many that came in.
    (_MANY // 2, {"last_in": _MANY, "last_out": 4 * _MANY}, _WITHOUT),
    (_MANY // 2, {"last_in": _MANY, "last_out": 4 * _MANY - 8}, _FOLLOWED),
    # Of groups that are computed from their rows, most change: in the last epoch, or by chance. These rows are about all.
    (60, {"rows": 100, "last_in": 40, "last_out": 40, "keeps_input": True, "kept": 2 * _VIEW_ROWS}, _WITHOUT),
    (59, {"rows": 100, "last_in": 40, "last_out": 40, "keeps_input": True, "kept": 2 * _VIEW_ROWS}, _FOLLOWED),
    (60, {"rows": 100, "last_in": 40, "last_out": 40, "keeps_input": False, "kept": 2 * _VIEW_ROWS}, _FOLLOWED),
    (36, {"rows": 100, "keeps_input": True, "kept": 2 * _VIEW_ROWS}, _WITHOUT),
    (35, {"rows": 100, "keeps_input": True, "kept": 2 * _VIEW_ROWS}, _FOLLOWED),
    (400, {"rows": 100, "keeps_input": True, "kept": _VIEW_ROWS // 2 - 1}, _FOLLOWED),
    (400, {"rows": 100, "keeps_input": True, "kept": _LEAST - 1, "rows_read": _LEAST}, _FOLLOWED),
    # What is without state has no input rows, and would have them of all that it reads.
    (400, {"rows": 100, "keeps_input": True, "unfilled": frozenset({1})}, _WITHOUT),
    (9, {"rows": 100, "keeps_input": True, "unfilled": frozenset({1})}, _FILLED),
    # Nothing has changed: nothing is read, nor is state filled.
    (0, {"unfilled": frozenset({1})}, _FOLLOWED),
    (0, {"unfilled": frozenset({1}), "state_tables": (4,)}, _FOLLOWED),
    (0, {"slower": "it took long"}, _FOLLOWED),
    (1, {"slower": "it took long"}, _WITHOUT),
    # Without state, changes have to be half as large to be followed.
    (_MANY // 2, {"unfilled": frozenset({1})}, _WITHOUT),
    (_MANY // 2 - 1, {"unfilled": frozenset({1})}, _FILLED),
    (1, {"unfilled": frozenset({1}), "state_tables": (4,)}, _WITHOUT),
]


@pytest.mark.parametrize(("changed", "facts", "expected"), _RECOMPUTED)
def test_all_rows_are_computed_where_most_change(changed: int, facts: dict[str, Any], expected: Recompute | None) -> None:
    facts, kept = dict(facts), facts.get("kept", 0)
    facts.pop("kept", None)
    read = Read("t", "all rows", 1, row_count=facts.pop("rows_read", _VIEW_ROWS), width=RowWidth(1, 1))
    rows = facts.pop("rows", _VIEW_ROWS)
    all_rows = AllRows(lambda: (read,), lambda: rows, RowWidth(1, 1), **facts)
    plan = _plan(changed=changed, all_rows=all_rows, recomputed_rows=kept)
    assert plan.compute.recomputes is expected
    assert (plan.why_recomputed is None) == (expected is None)
    assert (plan.reads == (read,)) == (expected is not None)
    assert plan.maintain.empties == (all_rows.state_tables if expected is Recompute.WITHOUT_STATE else ())
    assert bool(plan.compute.new_state.ids) == (expected is Recompute.WITH_STATE)
    again = plan_escalation(plan, 1, most_tasks=8)
    assert again.compute.recomputes is expected, "too many rows for the driver are no reason to follow changes"


def _escalations(plan: ViewEpochPlan) -> list[Escalation]:
    return [step for step in plan.steps if isinstance(step, Escalation)]


@pytest.mark.parametrize("sizes", [{"full": True}, {"is_slice": True, "changed": _VALUES + 1}], ids=["full", "slice"])
def test_what_has_sparks_own_settings_keeps_them_when_more_is_met(sizes: dict[str, Any]) -> None:
    again = plan_escalation(_plan(**sizes), 1, most_tasks=8)
    assert (again.compute.engine, again.compute.shuffle_tasks) == (Workload.FULL, None)
    assert (again.publish.engine, again.publish.shuffle_tasks) == (Workload.FULL, None)


def test_tables_that_have_grown_are_rewritten() -> None:
    rule = _plan().maintain
    most, spare = _LIMITS.driver_compaction_bytes, _LIMITS.compaction_spare_rows
    found = StateFound(
        bytes={1: 1, 2: 1, 3: most + 1, 4: 1, 5: 1},
        rows={1: spare + 1, 2: 3 * spare, 3: 9 * spare, 4: 1, 5: 1},
        merged_rows={2: spare},
    )
    assert rule.for_state(found).rewrites == (1,)
    assert rule.for_state(replace(found, rows={**found.rows, 2: 3 * spare + 1})).rewrites == (1, 2)
    assert rule.for_state(replace(found, expired=frozenset({4}))).rewrites == (1, 4)
    assert rule.for_state(replace(found, expired=frozenset({3, 4}))).rewrites == (1,), "for Spark, by relstate compact"
    assert rule.for_state(replace(found, closed=frozenset({1, 5}))).rewrites == (1, 5)
    assert rule.for_state(replace(found, closed=frozenset({4, 5}))).rewrites == (1,), "not yet"
    assert rule.for_state(replace(found, expired=frozenset({4}))).lines() == (
        "maintain: rewrite state tables 1, 4, by the driver, without expired rows",
    )


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


#: Limits under which epochs of some rows are done as large ones are.
_OTHER_LIMITS = [
    {},
    {"driver_change_bytes": 0, "driver_backfill_bytes": 0, "driver_commit_bytes": 0, "driver_commit_rows": 0},
    {"driver_publish_bytes": 0},
    {"driver_held_bytes": 100},
    {
        "driver_change_bytes": 0,
        "driver_backfill_bytes": 0,
        "driver_publish_bytes": 0,
        "driver_commit_bytes": 0,
        "driver_commit_rows": 0,
        "replaced_key_bytes": 0,
    },
    {"interpreted_values": 0, "compaction_spare_rows": 0, "compaction_growth": 1},
]


@pytest.mark.parametrize("seed", range(2))
def test_what_ran_is_what_was_printed(spark: SparkSession, script: Script, resized: Resized, seed: int) -> None:
    """Each step ran as explained, but for parts that were left open, and escalations."""
    script.begin(_SETUP)
    rng = random.Random(seed)
    escalated = 0
    for n, limits in enumerate(rng.sample(_OTHER_LIMITS, len(_OTHER_LIMITS))):
        resized(**{**asdict(_LIMITS), **limits})
        new = 1000 * (n + 1)
        changes = [
            f"UPDATE t SET v = v + {new} WHERE k % 7 = {n}",
            f"INSERT INTO t SELECT {new} + id, id % 12, id FROM range({rng.randrange(1, 40)})",
            f"DELETE FROM t WHERE k % 5 = {n % 5}",
            f"INSERT INTO ev VALUES ({n}, {n})",
        ]
        script.run("; ".join(rng.sample(changes, 2)))
        explained = {name: _explained(script, name) for name in ("sums", "pairs")}
        reports = _run(spark, script)
        for name, lines in explained.items():
            if not lines[0].startswith("nothing to do"):
                escalated += _ran_as(lines, reports[name].stages)
                assert _is_by_spark(script, name, reports[name]) == ("commit state: by Spark" in reports[name].stages)
        script.verify()
    assert escalated


def _ran_as(explained: list[str], ran: Sequence[str]) -> bool:
    """Whether an epoch escalated; it ran as explained up to there."""
    done = [line for line in ran if not line.startswith("maintain: ")]
    before = [line for line in explained if not line.startswith("maintain: ")]
    escalation = next((n for n, line in enumerate(done) if line.startswith("escalate: ")), None)
    if escalation is not None:
        assert done[:escalation] == before[:escalation]
        return True
    assert done[:-2] == before[:-2]
    for told, line in zip(before[-2:], done[-2:], strict=True):
        if line == "publish: no row has changed":
            continue
        by = [word for word in ("by the driver", "by Spark") if line.endswith(word)]
        assert len(by) == 1, "nothing is left open"
        # A change set that the driver has is appended by it, whatever the size of the table.
        is_append = line.startswith("publish: append")
        assert told.split("; ")[0].endswith(by[0]) or "else Spark" in told or is_append, (told, line)
        if told.startswith("publish: ") and not told.startswith("publish: merge"):
            assert told.split(",")[0] == line.split(",")[0]
    return False


def _is_by_spark(script: Script, name: str, report: ViewReport) -> bool:
    """Whether Spark made the state commit of an epoch."""
    path = script.warehouse.state_path(script.warehouse.read().views[name])
    for commit in latest_commits(path, None):
        if f'"epoch": {report.epoch}' in (commit.user_metadata or ""):
            return "Spark" in str(commit_info(DeltaLog(path).commit(commit.version)).get("engineInfo"))
    raise AssertionError(f"epoch {report.epoch} of {name} has no commit")


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
    built = {
        name: preview_view(script.warehouse, state, state.views[name].restarted(), most_tasks=2).lines for name in state.views
    }
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
    """Rows of upstream views count.

    A view over a view was once planned as if it read nothing.
    """
    script = Script(spark, tmp_path / "warehouse")
    script.run(_SETUP.rsplit("CREATE", 2)[0])
    resized(driver_backfill_bytes=0, driver_change_bytes=0, driver_commit_bytes=0, driver_commit_rows=0)
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
    path = script.warehouse.state_path(view)
    return "Spark" in str(commit_info(DeltaLog(path).commit(1)).get("engineInfo"))


def test_explain_says_what_cannot_run(spark: SparkSession, script: Script) -> None:
    script.begin(_SETUP)
    state = script.warehouse.read()
    source = Path(script.warehouse.source(state.sources["t"]).path)
    source.rename(source.parent / "elsewhere")
    (line,) = preview_view(script.warehouse, state, state.views["sums"], most_tasks=2).lines
    assert line.startswith("cannot run: ")
    assert "t" in line


@pytest.mark.parametrize("name", ["sums", "of_sums"])
def test_a_new_view_is_explained_as_a_backfill(script: Script, name: str) -> None:
    script.begin(_SETUP)
    state = script.warehouse.read()
    view = state.views[name].restarted()
    lines = preview_view(script.warehouse, state, view, most_tasks=2).lines
    assert lines[0].startswith("read sums: all rows of the view, " if name == "of_sums" else "read t: all rows, ")
    assert any(line.startswith("publish: ") for line in lines)
