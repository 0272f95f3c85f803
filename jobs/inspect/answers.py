"""Answers about rows of views, computed by Spark in this process.

Values are as they are shown.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.inspect.view_diff import ViewDiff, view_diff
from relstate_dagster.jobs.inspect.why.report import Why, why


class Answers:
    """Answers on one warehouse.

    Parameters
    ----------
    spark : any session with Delta.
    """

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        self._spark = spark
        self._warehouse = warehouse

    def why(self, view: str, key: str, *, epoch: int | None, limit: int, as_json: bool) -> Why:
        """As :func:`.jobs.inspect.why.report.why`, without frames."""
        return why(self._spark, self._warehouse, view, key, epoch=epoch, limit=limit).for_show(as_json=as_json)

    def diff(self, view: str, since: int | None, until: int | None, *, limit: int, as_json: bool) -> ViewDiff:
        """As :func:`.jobs.inspect.view_diff.view_diff`."""
        return view_diff(self._spark, self._warehouse, view, since, until, limit=limit).for_show(as_json=as_json)
