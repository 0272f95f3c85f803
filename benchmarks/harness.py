"""A warehouse over a replayed stream, with views run incrementally and in full."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from benchmarks.measure import Probe, Sample, Written, log_versions, written_since
from benchmarks.queries import KEYS, columns_of, tables_of
from benchmarks.series import Replay
from relstate_dagster.jobs.api import EpochRunner, Registry, SourceEntry, ViewEntry, ViewReport, Warehouse
from relstate_dagster.jobs.declare import materialized_view
from relstate_dagster.jobs.declare.query_function import text_of_query
from relstate_dagster.jobs.engine import SparkSettings, create_session
from relstate_dagster.jobs.plan.nodes import walk


class Mismatch(Exception):
    """A view does not equal its query."""


def start_spark(memory: str, *, counts_stages: bool = True, is_brief: bool = False) -> SparkSession:
    """One Spark for everything that is measured, on all cores of this machine.

    Parameters
    ----------
    counts_stages : whether stages and tasks are counted. What one piece of work ran must then still be known when it ends.
    is_brief : whether the JVM optimizes no compiled code.
    """
    conf = {"spark.ui.retainedJobs": "5000", "spark.ui.retainedStages": "5000", "spark.ui.retainedTasks": "1000"}
    conf = conf if counts_stages else {}
    return create_session(SparkSettings(driver_memory=memory, app_name="relstate-benchmarks", conf=conf, is_brief=is_brief))


def environment(spark: SparkSession, memory: str) -> dict[str, Any]:
    """Facts that the figures depend on, without names or paths."""
    total = None
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        total = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    java = spark.sparkContext._jvm.java.lang.System.getProperty("java.version")  # type: ignore[union-attr]
    return {
        "cores": os.cpu_count(),
        "memory_gb": total,
        "driver_memory": memory,
        "cpu": _cpu_model(),
        "os": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": str(java),
        "spark": version("pyspark"),
        "delta_spark": version("delta-spark"),
        "deltalake": version("deltalake"),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


class Bench:
    """A warehouse over the tables of a replay, with views run both ways.

    Parameters
    ----------
    root : the warehouse's folder; emptied first.
    indexes : columns of tables that have an index by them.
    """

    def __init__(
        self,
        spark: SparkSession,
        probe: Probe,
        root: Path,
        replay: Replay,
        indexes: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> None:
        shutil.rmtree(root, ignore_errors=True)
        self.spark = spark
        self.probe = probe
        self.replay = replay
        self.warehouse = Warehouse(root)
        self.registry = Registry(spark, self.warehouse)
        for table in replay.tables:
            self.registry.add_source(SourceEntry(table, replay.path(table), KEYS[table], indexes=indexes.get(table, ())))
        self.runner = EpochRunner(spark, self.warehouse, parallel_views=1)

    def add_view(self, name: str, query: str) -> ViewEntry:
        """Declare a view."""
        return self.registry.add_view(materialized_view(query=query, name=name)).views[name]

    def view(self, name: str) -> ViewEntry:
        """A view as the catalog has it now."""
        return self.warehouse.read().views[name]

    def epoch(self) -> tuple[list[ViewReport], Sample, dict[str, Any]]:
        """One epoch of all views: reports, cost, and written bytes by place."""
        places = self._places()
        before = {p: log_versions(p) for paths in places.values() for p in paths}
        reports, sample = self.probe.measure(lambda: list(self.runner.run()))
        written = {kind: asdict(sum((written_since(p, before[p]) for p in paths), Written())) for kind, paths in places.items()}
        return reports, sample, written

    def _places(self) -> dict[str, list[str]]:
        views = self.warehouse.read().views.values()
        return {
            "state": [self.warehouse.state_path(v) for v in views],
            "view": [self.warehouse.target(v.name).path for v in views],
            "catalog": [f"{self.warehouse.root}/_relstate/catalog"],
        }

    def index_bytes(self) -> int:
        """Bytes of the files of all indexes."""
        sources = self.warehouse.read().sources.values()
        return sum(live_bytes(self.warehouse.index_path(s.name, column)) for s in sources for column in s.indexes)

    def verify(self) -> None:
        """Compare every view with its query, run in full on the pinned inputs.

        Raises
        ------
        Mismatch : one differs.
        """
        verify(self.runner)

    def drop(self) -> None:
        """Remove the warehouse's files."""
        shutil.rmtree(self.warehouse.root, ignore_errors=True)


def verify(runner: EpochRunner) -> None:
    """Compare all views with their queries, run in full on pinned inputs.

    Raises
    ------
    Mismatch : one differs.
    """
    for report in runner.verify():
        if not report.equal:
            raise Mismatch(
                f"{report.view} at epoch {report.epoch}: {report.missing_rows} rows missing, "
                f"{report.unexpected_rows} unexpected"
            )


class Opponent:
    """The other way to keep a view: its query in full, written as Delta.

    On the same Spark and the same tables.

    The session has what serves such a query best. Adaptive execution and code generation are on, and there are as many
    shuffle partitions as cores. Statistics and file listing are as for the maintained views. The tables are read at their
    newest version, which Spark finds sooner than a pinned one; it is the version that the epoch has pinned.
    """

    def __init__(self, spark: SparkSession, probe: Probe, folder: Path, replay: Replay, view: ViewEntry) -> None:
        self._probe = probe
        self._folder = folder
        self._replay = replay
        self._query = text_of_query(view.query)
        self._tables = tables_of(self._query)
        self._runs = 0
        self._session = spark.newSession()
        self._set(view.settings)
        self._set(
            {
                "spark.sql.adaptive.enabled": "true",
                "spark.sql.codegen.wholeStage": "true",
                "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
                "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
                "spark.sql.files.openCostInBytes": "65536",
            }
        )

    def _set(self, settings: Mapping[str, str]) -> None:
        for key, value in settings.items():
            self._session.conf.set(key, value)

    def run(self) -> Sample:
        """Run the query and write a new Delta table, which is removed again."""
        self._runs += 1
        target = self._folder / f"full{self._runs}"
        _, sample = self._probe.measure(lambda: self._write(target))
        shutil.rmtree(target)
        return sample

    def _write(self, target: Path) -> None:
        for table in self._tables:
            self._session.read.format("delta").load(self._replay.path(table)).createOrReplaceTempView(table)
        self._session.sql(self._query).write.format("delta").save(str(target))


def live_bytes(table: str) -> int:
    """Bytes of the data files of a table's newest version; 0 where there is none."""
    if not log_versions(table):
        return 0
    sizes = DeltaTable(table).get_add_actions(flatten=True).column("size_bytes").to_pylist()
    return sum(int(size) for size in sizes)


def input_bytes(replay: Replay, query: str) -> int:
    """Parquet bytes of the columns that a query uses, at the newest versions."""
    total = 0
    for table in tables_of(query):
        delta = DeltaTable(replay.path(table))
        used = set(columns_of(query, [f.name for f in delta.schema().fields]))
        for path in delta.get_add_actions(flatten=True).column("path").to_pylist():
            found = pq.read_metadata(f"{replay.path(table)}/{path}")
            for group in range(found.num_row_groups):
                row_group = found.row_group(group)
                chunks = (row_group.column(n) for n in range(row_group.num_columns))
                total += sum(c.total_compressed_size for c in chunks if c.path_in_schema in used)
    return total


def plan_nodes(view: ViewEntry) -> int:
    """Number of nodes in a view's plan."""
    return 0 if view.plan is None else sum(1 for _ in walk(view.plan))
