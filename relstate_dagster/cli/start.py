"""Starting what a verb needs: Spark with a sign of life, and a warehouse that knows its project."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from relstate_dagster.cli.app import LOG_LEVEL, console
from relstate_dagster.jobs.declare import Project, load_project
from relstate_dagster.jobs.spark import SparkSettings, create_session
from relstate_dagster.jobs.spark.logs import LEVELS, LogSettings
from relstate_dagster.settings import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from relstate_dagster.jobs.api import EpochRunner, Warehouse


def start_spark(where: Location | None = None) -> SparkSession:
    """The session of this process; its log goes to a file of the warehouse, if that lies on this machine."""
    with console.status("starting Spark"):
        logs = log_settings(where)
        if where is None:
            return create_session(SparkSettings(logs=logs))
        return create_session(SparkSettings(logs=logs, with_s3=where.needs_s3, with_azure=where.needs_azure))


def log_settings(where: Location | None) -> LogSettings:
    """Where Spark's log goes, and what of it reaches the terminal."""
    level = os.environ.get(LOG_LEVEL, LEVELS[0])
    return LogSettings(level, None if where is None else where.log_file)


def open_project(where: Location, spark: SparkSession) -> tuple[Project, Warehouse, EpochRunner]:
    """A project, the warehouse that it is declared in, and the warehouse's runner."""
    from relstate_dagster.jobs.api import Warehouse  # noqa: PLC0415 - imports PySpark

    project = load_project(where.project)
    warehouse = Warehouse(where.warehouse, where.functions)
    return project, warehouse, declare_project(project, warehouse, spark)


def declare_project(project: Project, warehouse: Warehouse, spark: SparkSession) -> EpochRunner:
    """Make a project known to a warehouse; the warehouse's runner."""
    from relstate_dagster.jobs.api import EpochRunner, sync_project  # noqa: PLC0415 - imports PySpark

    with console.status("planning views"):
        sync_project(spark, warehouse, project)
    return EpochRunner(spark, warehouse)
