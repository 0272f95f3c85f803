"""Start-up of verbs: Spark with a sign of life, and a warehouse with its project."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from relstate_dagster.cli.app import LOG_LEVEL, console
from relstate_dagster.jobs.catalog.waiting import seconds_to_wait
from relstate_dagster.jobs.declare import Project, load_project
from relstate_dagster.jobs.engine import SparkSettings, create_session
from relstate_dagster.jobs.engine.logs import LEVELS, LogSettings
from relstate_dagster.settings import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from relstate_dagster.jobs.api import Answers, EpochRunner, Warehouse
    from relstate_dagster.server.answers import ServerAnswers
    from relstate_dagster.server.client import ServerAt
    from relstate_dagster.server.runner import ServerRunner
    from relstate_dagster.server.settings import ServerSettings


def start_spark(where: Location | None = None, *, is_brief: bool = False) -> SparkSession:
    """The session of this process.

    Its log goes to a file of the warehouse, if that lies on this machine.

    ``is_brief``: little is to be done in it, as :class:`.jobs.engine.SparkSettings` has it.
    """
    with console.status("starting Spark"):
        return create_session(replace(spark_settings(where), is_brief=is_brief))


def spark_settings(where: Location | None) -> SparkSettings:
    """Spark settings of this process, or of a server for it."""
    logs = log_settings(where)
    if where is None:
        return SparkSettings(logs=logs)
    return SparkSettings(logs=logs, stores=where.stores)


def server_settings(where: Location, **others: Any) -> ServerSettings:
    """Settings of a server for this process."""
    from relstate_dagster.server.settings import ServerSettings  # noqa: PLC0415 - for verbs that ask a server only

    return ServerSettings.of(where.warehouse, spark_settings(where), where.functions, **others)


def server_of(where: Location, wanted: str) -> ServerAt | None:
    """The server for ``--server``; None if this process does the work."""
    from relstate_dagster.server.client import server_for  # noqa: PLC0415 - as above

    with console.status("looking for a server"):
        return server_for(wanted, server_settings(where))


def runner_of(
    where: Location,
    project: Project | None,
    home: Warehouse,
    wanted: str,
    on_start: Callable[[str], None] = lambda _said: None,
    is_brief: Callable[[], bool] = lambda: False,
    full_refresh: Collection[str] = (),
) -> EpochRunner | ServerRunner:
    """Runner of a location: a server, else this process.

    A project is registered before.

    ``is_brief`` says whether it is little, where this process does it. ``full_refresh`` are views that edits may rebuild
    though their policy is strict.
    """

    def by_itself() -> EpochRunner:
        from relstate_dagster.jobs.api import EpochRunner  # noqa: PLC0415 - imports PySpark

        spark = start_spark(where, is_brief=is_brief())
        if project is not None:
            _declare_project(project, home, spark, full_refresh)
        return EpochRunner(spark, home, on_start=on_start)

    server = server_of(where, wanted)
    if server is None:
        return by_itself()
    from relstate_dagster.server.runner import ServerRunner  # noqa: PLC0415 - as above

    return ServerRunner(
        server, server_settings(where).agreed(), project, by_itself, tell_remark, on_start, wait_seconds=seconds_to_wait()
    )


def answers_of(where: Location, home: Warehouse, wanted: str) -> Answers | ServerAnswers:
    """Source of answers on rows of views: a server, else this process."""

    def by_itself() -> Answers:
        from relstate_dagster.jobs.api import Answers  # noqa: PLC0415 - imports PySpark

        return Answers(start_spark(where), home)

    server = server_of(where, wanted)
    if server is None:
        return by_itself()
    from relstate_dagster.server.answers import ServerAnswers  # noqa: PLC0415 - for verbs that ask a server only

    return ServerAnswers(server, server_settings(where).agreed(), None, by_itself, tell_remark, wait_seconds=seconds_to_wait())


def opened(where: Location, wanted: str, *, declare: bool) -> EpochRunner | ServerRunner:
    """Runner of a location, its project registered before if asked for."""
    from relstate_dagster.jobs.api import Warehouse  # noqa: PLC0415 - imports PySpark

    project = load_project(where.project, warehouse=where.warehouse) if declare else None
    return runner_of(where, project, Warehouse(where.warehouse, where.functions), wanted)


def loaded(where: Location) -> Project:
    """The project of a location; prints remarks on parts of it that are not used."""
    project = load_project(where.project, warehouse=where.warehouse)
    for remark in project.remarks:
        tell_remark(remark)
    return project


def tell_remark(remark: str) -> None:
    """Print a remark."""
    console.print(remark, highlight=False, markup=False, soft_wrap=True)


def log_settings(where: Location | None) -> LogSettings:
    """Settings of Spark's log: file, and level for the terminal."""
    level = os.environ.get(LOG_LEVEL, LEVELS[0])
    return LogSettings(level, None if where is None else where.log_file)


def open_project(where: Location, spark: SparkSession) -> tuple[Project, Warehouse, EpochRunner]:
    """A project, the warehouse that it is declared in, and the warehouse's runner."""
    from relstate_dagster.jobs.api import EpochRunner, Warehouse  # noqa: PLC0415 - imports PySpark

    project = load_project(where.project, warehouse=where.warehouse)
    warehouse = Warehouse(where.warehouse, where.functions)
    _declare_project(project, warehouse, spark)
    return project, warehouse, EpochRunner(spark, warehouse)


def _declare_project(project: Project, warehouse: Warehouse, spark: SparkSession, full_refresh: Collection[str] = ()) -> None:
    """Make a project known to a warehouse."""
    from relstate_dagster.jobs.api import sync_project  # noqa: PLC0415 - imports PySpark

    with console.status("planning views"):
        sync_project(spark, warehouse, project, full_refresh=full_refresh)


def store_plans(where: Location, project: Project, warehouse: Warehouse) -> None:
    """Plan the new, edited and unbuilt views of a project; the next run builds them."""
    from relstate_dagster.jobs.api import Registry  # noqa: PLC0415 - imports PySpark

    spark = start_spark(where, is_brief=True)
    _declare_project(project, warehouse, spark)
    with console.status("planning views"):
        Registry(spark, warehouse).plan_unbuilt()
