"""What the views would cost without us: each query run in full, its result written as a Delta table."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from jobs.declare import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FullRecompute:
    """Runs the queries of a project in full, in a session of its own.

    Parameters
    ----------
    spark
        Any session; tables are made known in a new one beside it.
    project
        Views to run.
    source_path
        Tells where a source lies.
    folder
        Where results go: ``<folder>/<view>``, overwritten each time, as a job that recomputes a table would.
    """

    def __init__(self, spark: SparkSession, project: Project, source_path: Callable[[str], str], folder: str) -> None:
        self._spark = spark.newSession()
        self._project = project
        self._source_path = source_path
        self._folder = folder

    def seconds(self) -> dict[str, float]:
        """Run every view, upstream first, and return how long each took."""
        for name in self._project.source_names:
            self._name(name, self._source_path(name))
        for plain in self._project.plain_views:
            self._spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {plain.name} AS {plain.sql}")
        found: dict[str, float] = {}
        for view in self._project.views:
            started = time.perf_counter()
            path = f"{self._folder}/{view.name}"
            result = self._spark.sql(view.sql)
            result.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)
            found[view.name] = time.perf_counter() - started
            self._name(view.name, path)
        return found

    def _name(self, name: str, path: str) -> None:
        self._spark.read.format("delta").load(path).createOrReplaceTempView(name)
