"""Starting what a verb needs: Spark with a sign of life, and a warehouse that knows its project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.declare import Project, load_project
from jobs.spark import SparkSettings, create_session
from relstate_dagster.cli.app import console
from relstate_dagster.settings import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.api import EpochRunner, Warehouse


def start_spark() -> SparkSession:
    """The session of this process."""
    with console.status("starting Spark"):
        return create_session(SparkSettings())


def open_project(where: Location, spark: SparkSession) -> tuple[Project, Warehouse, EpochRunner]:
    """A project, the warehouse that has been told of it, and the warehouse's runner."""
    from jobs.api import EpochRunner, Warehouse, sync_project  # noqa: PLC0415 - imports PySpark

    project = load_project(where.project)
    warehouse = Warehouse(where.warehouse, where.functions)
    with console.status("planning views"):
        sync_project(spark, warehouse, project)
    return project, warehouse, EpochRunner(spark, warehouse)
