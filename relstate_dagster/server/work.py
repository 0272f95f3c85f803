"""Work of a server on a request, in its own thread, with Spark and caches."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import (
    Answers,
    CheckReport,
    CompactReport,
    EpochRunner,
    KeyReport,
    Registry,
    VacuumReport,
    VerifyReport,
    ViewDiff,
    ViewReport,
    Warehouse,
    Why,
    sync_project,
)
from relstate_dagster.jobs.catalog.waiting import Patience
from relstate_dagster.jobs.declare import Project
from relstate_dagster.jobs.engine.spark_connect import new_session
from relstate_dagster.jobs.script import ScriptSession
from relstate_dagster.jobs.script.shown import failure_shown, rows_shown
from relstate_dagster.jobs.view_epoch.view_run import ViewRuns
from relstate_dagster.server.functions import WatchedFunctions
from relstate_dagster.server.json_values import from_plain, to_plain

#: The methods of a runner that may be asked for, with what each gives.
METHODS: Final[dict[str, type]] = {
    "run": ViewReport,
    "check": CheckReport,
    "verify": VerifyReport,
    "compact": CompactReport,
    "vacuum": VacuumReport,
    "stream_key_unique": KeyReport,
}
#: Those of answers on a warehouse.
ANSWERS: Final[dict[str, type]] = {"why": Why, "diff": ViewDiff}
SQL: Final = "sql"
DROP_VIEWS: Final = "drop_views"


class Cancelled(Exception):
    """The client has gone, or pressed Ctrl-C."""


class Job:
    """A request at work, with progress; other threads can cancel it."""

    def __init__(self, spark: SparkSession, tell: Callable[[str], None], begins: Callable[[str], None]) -> None:
        self._spark = spark
        self._group = uuid.uuid4().hex
        self._is_cancelled = False
        self.tell = tell
        self.begins = begins

    @property
    def is_cancelled(self) -> bool:
        """Whether it shall end."""
        return self._is_cancelled

    def begin(self, doing: str) -> None:
        """Put the Spark jobs of this thread, and of its threads, in one group."""
        self._spark.sparkContext.setJobGroup(self._group, doing, interruptOnCancel=True)

    def cancel(self) -> None:
        """Cancel the Spark jobs, and raise at the next step.

        Called again, it ends those that have begun since.
        """
        self._is_cancelled = True
        self._spark.sparkContext.cancelJobGroup(self._group)

    def check(self) -> None:
        """Raise where it was cancelled.

        Raises
        ------
        Cancelled
            No client waits for an answer.
        """
        if self._is_cancelled:
            raise Cancelled


class Works:
    """A warehouse, opened, and the sessions in which its views are maintained."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._functions = WatchedFunctions(warehouse.functions)
        self._runs = ViewRuns(spark, warehouse)

    def do(self, job: Job, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Do what a request asks for, and yield the items of its answer.

        Raises
        ------
        RelstateError
            As the method that is asked for.
        """
        if self._functions.reloaded():
            job.tell("functions were changed: they are imported again")
            self._runs = ViewRuns(self._spark, self._warehouse)
            # Workers that are kept would have the old modules: Spark takes those of the same environment only.
            self._spark.sparkContext.environment["RELSTATE_FUNCTIONS_SINCE"] = uuid.uuid4().hex
        what, arguments = request["do"], request.get("arguments", {})
        if what == SQL:
            yield from self._sql(job, **arguments)
            return
        runner = self._runner(job, request.get("wait_seconds"))
        if request.get("project") is not None:
            project, named = from_plain(Project, request["project"]), arguments.get("full_refresh", ())
            sync_project(self._spark, self._warehouse, project, runner.patience, full_refresh=named)
        if what == DROP_VIEWS:
            for name in arguments["names"]:
                Registry(self._spark, self._warehouse, runner.patience).drop(name, "view")
                yield {"item": name}
            return
        if what in ANSWERS:
            yield {"item": to_plain(getattr(Answers(self._spark, self._warehouse), what)(**arguments))}
            return
        for item in getattr(runner, what)(**arguments):
            yield {"item": to_plain(item)}
            job.check()

    def _runner(self, job: Job, wait_seconds: float | None) -> EpochRunner:
        return EpochRunner(
            self._spark,
            self._warehouse,
            patience=Patience(wait_seconds, job.tell, job.check),
            on_start=job.begins,
            runs=self._runs,
        )

    def _sql(
        self,
        job: Job,
        text: str,
        path: str | None,
        as_json: bool,
        keep_going: bool,
        wait_seconds: float | None = None,
    ) -> Iterator[dict[str, Any]]:
        # A session of its own: neither settings nor temporary views of one script are there for the next.
        session = new_session(self._spark)
        reports: list[ViewReport] = []
        runner = self._runner(job, wait_seconds)
        script = ScriptSession(session, self._warehouse, on_report=reports.append, runner=runner)
        try:
            for result in script.run(text, path):
                job.check()
                yield from ({"report": to_plain(report)} for report in reports)
                reports.clear()
                if isinstance(result, tuple):
                    kind, message = failure_shown(result[1], as_json=as_json)
                    yield {"failed": result[0], "class": kind, "message": message}
                    if not keep_going:
                        return
                    continue
                rows = rows_shown(result, as_json=as_json) if result.is_query else None
                yield {"done": result.statement, "columns": list(result.columns or ()), "rows": rows}
        finally:
            script.close()
