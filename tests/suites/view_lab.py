"""One query as a view over the epochs of a suite: real operators over real state tables, compared with Spark each time."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.engine.workloads import Workload, session_for
from relstate_dagster.jobs.inspect.verify import difference
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.routing import compute_changes
from relstate_dagster.jobs.operators.row_set import RowSets
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.new_state import NewState
from relstate_dagster.jobs.plan.nodes import Materialize
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.plan.stateful_plan import StatefulPlan
from relstate_dagster.jobs.planner.query_settings import meaning_of
from relstate_dagster.jobs.view_epoch.plan import run_limits
from relstate_dagster.state_lib.constants import TABLE_ID, WEIGHT
from relstate_dagster.state_lib.lake.log import DeltaLog, rows_by_partition
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_store import StateStore
from tests.suites.files import EpochFiles


@dataclass(frozen=True, slots=True)
class EpochResult:
    """One epoch of a view: rows its change set has, rows missing from and unexpected in the view, and what it took.

    ``stages`` are those of its Spark jobs, ``files`` those of its one commit.
    """

    epoch: int
    changed_rows: int
    missing: int
    unexpected: int
    jobs: int
    seconds: float
    check_seconds: float
    stages: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True)
class _Relations:
    """Relations in one epoch, from files."""

    session: SparkSession
    files: EpochFiles
    epoch: int

    def changes(self, name: str) -> DataFrame | None:
        path = self.files.change(self.epoch, name)
        return None if path is None else self.session.read.parquet(str(path))

    def rows(self, name: str, _lookup_keys: LookupKeys | None) -> DataFrame:
        rows = self.session.read.parquet(str(self.files.full(self.epoch, name)))
        return rows.withColumn(WEIGHT, F.lit(1).cast("bigint"))

    def come_once(self) -> bool:
        return True

    def gives_ids(self, _name: str) -> bool:
        return True

    def rows_between(self, name: str, column: str, lower: Column, upper: Column) -> DataFrame:
        return self.rows(name, None).where(F.col(f"`{column}`").between(lower, upper))

    def provably_absent_before(self, name: str, lookup_keys: LookupKeys) -> bool:
        return self.files.provably_absent_before(self.epoch - 1, name, lookup_keys)

    def row_count(self, name: str) -> int | None:
        """Known in every other epoch: sides are read whole in these, and for their keys in the others."""
        return self.files.row_count(self.epoch, name) if self.epoch % 2 else None

    def rows_read(self, _name: str, _lookup_keys: LookupKeys | None) -> float | None:
        return None

    def sample(self, _name: str) -> tuple[DataFrame, int] | None:
        return None


class ViewLab:
    """A view's plan, its state in a folder of its own, and the files of the tables it reads.

    Parameters
    ----------
    spark : a session with Delta; the view works in sessions of its own.
    plan, query : the view as it is maintained, and the text that Spark runs in full.
    relations : the tables that the query reads.
    files : their epochs.
    """

    def __init__(
        self, spark: SparkSession, plan: Materialize, query: str, relations: Mapping[str, Relation], files: EpochFiles
    ) -> None:
        self.plan, self.query, self.relations, self.files = plan, query, relations, files
        self._session = session_for(spark, meaning_of(spark), Workload.SMALL)
        self._folder = Path(tempfile.mkdtemp(prefix="relstate-suite-"))
        self._stateful = StatefulPlan.allocate(plan, 1)
        self.descs = self._stateful.tables
        self._store = StateStore(self._session, StateFiles(str(self._folder / "state")), self.descs)
        self._store.create()
        self._version = 0
        self._files = 0

    def close(self) -> None:
        """Delete the state."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, epoch: int) -> EpochResult:
        """Bring the view to an epoch, and compare it with its query run in full."""
        group = f"{self._folder.name}-{epoch}"
        context = self._session.sparkContext
        context.setJobGroup(group, f"epoch {epoch}")
        started = time.perf_counter()
        changed = self._step(epoch)
        stepped = time.perf_counter()
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        context.setJobGroup("check", "check")
        missing, unexpected = self._compare(epoch)
        return EpochResult(
            epoch,
            changed,
            missing,
            unexpected,
            len(jobs),
            round(stepped - started, 2),
            round(time.perf_counter() - stepped, 2),
            sum(len(job.stageIds) for job in jobs if job is not None),
            self._files,
        )

    def _step(self, epoch: int) -> int:
        tables = {
            found.node: [self._store.state_table(d.table_id, epoch=epoch, version=self._version) for d in found.tables]
            for found in self._stateful.nodes
        }

        context = EpochContext(
            epoch=epoch,
            new_state=NewState(is_all=epoch == 1),
            node_ids={found.node: found.id for found in self._stateful.nodes},
            relations=_Relations(self._session, self.files, epoch),
            tables=tables,
            row_sets=RowSets(self._session, shares_by_jobs=True, lookup_hint="shuffle_hash", limits=run_limits().driver),
            full_query=lambda _n: None,
        )
        compute_changes(context, self.plan)
        mem_tables = [t.mem_table for of_node in tables.values() for t in of_node if not t.mem_table.is_empty]
        self._files = 0
        if not mem_tables:
            return 0
        commit = {"txn_app_id": "suite", "txn_version": epoch, "user_metadata": f"e{epoch}"}
        rows = self._store.compute(epoch, mem_tables, run_limits().driver.collected_bytes) if self._store.is_plain else None
        if rows is not None:
            self._version = self._store.append_computed(epoch, rows, **commit)
        else:
            self._version = self._store.append(epoch, mem_tables, **commit)
        actions = DeltaLog(str(self._folder / "state")).commit(self._version)
        self._files = sum("add" in action for action in actions)
        written = rows_by_partition(actions, TABLE_ID)
        return {int(k): n for k, n in written.items()}.get(self.descs[-1].table_id, 0)

    def _compare(self, epoch: int) -> tuple[int, int]:
        merged = self._store.storage_table(self.descs[-1].table_id, version=self._version).scan()
        repeated = merged.withColumn("_copy", F.explode(F.sequence(F.lit(1).cast("bigint"), F.col(WEIGHT))))
        for name in self.relations:
            self._session.read.parquet(str(self.files.full(epoch, name))).createOrReplaceTempView(name)
        names = [f"c{n}" for n in range(len(self.plan.output))]
        actual = repeated.select(*columns_of([o.column for o in self.plan.output])).toDF(*names)
        return difference(self._session.sql(self.query), actual)
