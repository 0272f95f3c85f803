"""A process that brings the views up to date by batches: ours, or plain Spark.

It reads a line for each batch, and answers with a line of figures.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from benchmarks.harness import start_spark, verify
from benchmarks.measure import JvmProbe, Probe, jvm_pid, machine_cpu_seconds
from benchmarks.pipeline.stages import pipeline
from relstate_dagster.jobs.api import EpochRunner, ViewReport, Warehouse, is_brief_run, sync_project
from relstate_dagster.jobs.declare import Project, ViewDeclaration
from relstate_dagster.jobs.planner.query_frames import frame_of

#: What asks for a comparison of all views with their queries, in place of a batch.
VERIFY: Final = "verify"
#: What answers begin with, beside what Spark prints.
ANSWER: Final = "answer "


@dataclass(frozen=True)
class Task:
    """Work of one process.

    Parameters
    ----------
    way : ``ours`` or ``plain``.
    folder : holds ``sources``, and what is made of them.
    views : only these, and those that they read; all by default.
    is_brief : whether the JVM optimizes no code; ``None`` leaves that to the size of the work, as ``relstate run`` does.
    """

    way: str
    folder: str
    heap: str
    parallel: int
    views: tuple[str, ...] = ()
    is_brief: bool | None = None


class Ours:
    """All views in one epoch."""

    def __init__(self, task: Task) -> None:
        self._project = pipeline(task.views)
        self._warehouse = Warehouse(task.folder)
        names = [view.name for view in self._project.views]
        brief = is_brief_run(self._warehouse, self._project, names) if task.is_brief is None else task.is_brief
        self.is_brief = brief
        self.spark = start_spark(task.heap, counts_stages=False, is_brief=brief)
        self._runner = EpochRunner(self.spark, self._warehouse, parallel_views=task.parallel)
        self._declared = 0.0

    def batch(self) -> dict[str, dict[str, Any]]:
        """Declare the views and run an epoch, as ``relstate run`` does."""
        started = time.perf_counter()
        if not self._declared:
            sync_project(self.spark, self._warehouse, self._project)
            self._declared = time.perf_counter() - started
        else:
            self._declared = 0.0
        return {report.view: _of_view(report) for report in self._runner.run()}

    def more(self) -> dict[str, Any]:
        """Further figures of the last batch."""
        return {"declare_seconds": round(self._declared, 2)}

    def verify(self) -> None:
        """Compare every view with its query, run in full."""
        full = [view.name for view in self._warehouse.read().views.values() if view.strategy != "incremental"]
        if full:
            raise RuntimeError(f"recomputed in full by plan: {', '.join(full)}")
        verify(self._runner)


def _of_view(report: ViewReport) -> dict[str, Any]:
    return {
        "seconds": round(sum(report.seconds.values()), 3),
        "stages": {stage: round(seconds, 3) for stage, seconds in report.seconds.items()},
        "rows": report.rows_inserted + report.rows_deleted,
        "jobs": report.spark_jobs,
    }


class Plain:
    """Every view's query in full, each written as a Delta table."""

    def __init__(self, task: Task) -> None:
        self._project = pipeline(task.views)
        self._folder = Path(task.folder)
        self._parallel = task.parallel
        self.is_brief = bool(task.is_brief)
        self.spark = start_spark(task.heap, counts_stages=False, is_brief=self.is_brief)

    def batch(self) -> dict[str, dict[str, Any]]:
        """Write all tables, several at a time, each after those that it reads."""
        for source in self._project.sources:
            self._show(source.name, self._folder / "sources" / source.name)
        found: dict[str, dict[str, Any]] = {}
        run_in_order(self._project, self._parallel, lambda view: found.update({view.name: self._write(view)}))
        return found

    def _write(self, view: ViewDeclaration) -> dict[str, Any]:
        started = time.perf_counter()
        path = self._folder / "views" / view.name
        frame_of(self.spark, view.query).write.format("delta").mode("overwrite").save(str(path))
        self._show(view.name, path)
        return {"seconds": round(time.perf_counter() - started, 3)}

    def _show(self, name: str, path: Path) -> None:
        self.spark.read.format("delta").load(str(path)).createOrReplaceTempView(name)

    def more(self) -> dict[str, Any]:
        """No further figures."""
        return {}

    def verify(self) -> None:
        """Nothing to compare: these are the queries in full."""


def run_in_order(project: Project, parallel: int, work: Callable[[ViewDeclaration], object]) -> None:
    """Work on all views, several at a time, each after those that it reads."""
    pending = {view.name: view for view in project.views}
    running: dict[Future[object], str] = {}
    with ThreadPoolExecutor(max_workers=parallel) as pool:
        while pending or running:
            unfinished = {*pending, *running.values()}
            for name in [name for name in pending if not unfinished & set(project.reads[name])]:
                running[pool.submit(work, pending.pop(name))] = name
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                del running[future]
                future.result()


def main(task: Task) -> None:
    """Start Spark, then do what each line of the input asks for."""
    started = time.perf_counter()
    way = Ours(task) if task.way == "ours" else Plain(task)
    start_seconds = round(time.perf_counter() - started, 2)
    _answer({"start_seconds": start_seconds, "is_brief": way.is_brief, "jvm": jvm_pid(way.spark)})
    for line in sys.stdin:
        if line.strip() == VERIFY:
            way.verify()
            _answer({"verified": True})
            continue
        _answer(_measured(way, way.spark))


def _measured(way: Ours | Plain, spark: SparkSession) -> dict[str, Any]:
    probe, jvm, busy = Probe(spark, counts_stages=False), JvmProbe(spark), machine_cpu_seconds()
    views, sample = probe.measure(way.batch)
    both = (sample.cpu_jvm or 0.0) + (sample.cpu_python or 0.0)
    others = {} if busy is None else {"cpu_others": round((machine_cpu_seconds() or 0.0) - busy - both, 2)}
    return {**sample.to_dict(), "cpu": round(both, 2), **others, **jvm.since(), **way.more(), "views": views}


def _answer(found: dict[str, Any]) -> None:
    print(ANSWER + json.dumps(found), flush=True)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(Task(**{**given, "views": tuple(given["views"])}))
