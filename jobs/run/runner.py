"""Work on the views of a warehouse: runs, compaction, vacuum, verification and checks."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.claims import Claims
from relstate_dagster.jobs.catalog.locking import maintenance_lock
from relstate_dagster.jobs.catalog.protocol import to_rebuild, with_dependents
from relstate_dagster.jobs.catalog.relations import outside_upstream, sources_of_new, topological
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.strict import check_full_refresh
from relstate_dagster.jobs.catalog.waiting import Patience
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine.instants import Clock, utc_now
from relstate_dagster.jobs.engine.spark_connect import new_session
from relstate_dagster.jobs.engine.workloads import Workload
from relstate_dagster.jobs.inspect.checks import check_view
from relstate_dagster.jobs.inspect.published_keys import KeyReport, check_keys
from relstate_dagster.jobs.inspect.verify import recompute_seconds, verify_view
from relstate_dagster.jobs.run.earlier_plans import planned_by_this_version
from relstate_dagster.jobs.run.epochs import Epochs, check_there
from relstate_dagster.jobs.run.indexes import refresh_indexes
from relstate_dagster.jobs.run.ingest import Ingested
from relstate_dagster.jobs.run.run_context import RunContext
from relstate_dagster.jobs.run.slice_run import SliceRun
from relstate_dagster.jobs.run.telemetry import recorded
from relstate_dagster.jobs.run.until_version import check_reachable, named_sources
from relstate_dagster.jobs.run.vacuum import VacuumReport, vacuum
from relstate_dagster.jobs.view_epoch.cancellation import CancelJobs, cancellable
from relstate_dagster.jobs.view_epoch.compaction import CompactReport, compact_view
from relstate_dagster.jobs.view_epoch.error_messages import ended_spark_is_said, ends_the_run, explained
from relstate_dagster.jobs.view_epoch.reports import CheckReport, VerifyReport, ViewReport
from relstate_dagster.jobs.view_epoch.view_run import ViewRuns
from relstate_dagster.state_lib.constants import RETAINED_HOURS
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.lake.address import table_reference
from relstate_dagster.state_lib.size_settings import current_sizes


class EpochRunner:
    """Brings the views of a warehouse up to date.

    Parameters
    ----------
    spark : any session with Delta; work is done in sessions of its own on the same Spark.
    warehouse : where sources, views and state lie.
    parallel_views : how many views are computed at the same time.
    clock : asked once an epoch for the instant that is ``now()`` in all of its views.
    patience : how to wait for other runs that have some of the same views. Its interrupt is also called between steps and
        before commits, and ends the run by an error.
    on_start : called with what begins: a view, and which epoch it is brought to; and with how far one is that takes long.
    runs : sessions to go on with, of an earlier runner of the same warehouse.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        *,
        parallel_views: int = 3,
        clock: Clock = utc_now,
        patience: Patience | None = None,
        on_start: Callable[[str], None] = lambda _said: None,
        runs: ViewRuns | None = None,
    ) -> None:
        current_sizes()  # what the environment says of them, before anything is written
        self._spark = spark
        self._warehouse = warehouse
        self._parallel_views = parallel_views
        self._clock = clock
        self._runs = runs or ViewRuns(spark, warehouse)
        #: How it waits, as what declares views for it has to.
        self.patience = patience or Patience()
        self._on_start = on_start

    def run(
        self,
        views: Sequence[str] | None = None,
        *,
        full_refresh: Sequence[str] = (),
        until_version: Mapping[str, int] = MappingProxyType({}),
        strict: bool = False,
        run_id: str | None = None,
    ) -> Iterator[ViewReport]:
        """Run one epoch, yielding a report as each view is published, or left behind.

        Parameters
        ----------
        views : which views; all by default. A view whose upstream views are not among them goes to the newest epoch
            that all of those have reached. Tables of changes that a new view reads are brought up to date with it.
        full_refresh : views to plan again and rebuild from their sources; views over them are rebuilt as well. Of these, strict
            ones have to be named too.
        until_version : Delta versions, by the names of sources. This run reads these up to there at most. New files of a folder
            that is named here are not read.
        strict : check what every operator gives, at the cost of Spark jobs (:mod:`.jobs.operators.contracts`). A view that
            fails is left behind.

        Raises
        ------
        DeclarationError : there is no such view or source; nothing was done.
        PlanError : a strict view would be rebuilt that is not named; nothing was done.
        SourceError : a source has no such version, or a view has read further; nothing was done.
        EpochError : another run has some of the views for longer than there was time to wait; nothing was done.
        RelstateError : views were left behind; raised once all others have reached the epoch. That of the one view, or an
            EpochError that names them all.
        """
        run_id = run_id or uuid.uuid4().hex

        def steps(cancel_jobs: CancelJobs) -> Generator[ViewReport]:
            return recorded(self._warehouse, run_id, self._run(run_id, views, full_refresh, until_version, strict, cancel_jobs))

        return cancellable(self._spark, self._runs.pool.all, steps)

    def _run(
        self,
        run_id: str,
        views: Sequence[str] | None,
        full_refresh: Sequence[str],
        until_version: Mapping[str, int],
        strict: bool,
        cancel_jobs: CancelJobs,
    ) -> Generator[ViewReport]:
        if self._warehouse.functions is not None:
            self._warehouse.functions.load()
        with ended_spark_is_said(), self._claims(run_id, "bringing up to date") as claims:
            state = self._warehouse.read()
            names = self._selected(state, views)
            names = self._selected(state, [*names, *sources_of_new(state.working, names)])
            run = RunContext(
                self._spark,
                self._warehouse,
                self._runs,
                claims,
                self._parallel_views,
                self._clock,
                self._on_start,
                self.patience.interrupted,
                cancel_jobs,
                until=named_sources(until_version, state.sources),
                strict=strict,
            )
            full_refresh = [*map(state.called, full_refresh)]
            check_full_refresh(state, full_refresh)
            state, planned_otherwise = planned_by_this_version(run, state, names, full_refresh)
            full_refresh += planned_otherwise
            check_reachable(to_rebuild(state, full_refresh).working, names, run.until, run.source)
            epochs = Epochs(run)
            state, full_refresh = yield from SliceRun(run, epochs).build(state, names, full_refresh)
            for report in epochs.start_epoch(state, names, full_refresh):
                yield _with_malformed(report, state, run.ingested)
            # Views selected without all of their upstream views follow to an epoch that those have all reached.
            for name in names:
                if outside_upstream(state.working, name, names) and name not in run.left:
                    yield from epochs.resume_view(name)
            if any(source.indexes for source in state.sources.values()):
                refresh_indexes(self._spark, self._warehouse, self._warehouse.read(), run.reads, claims, run.until)
        run.left.raise_if_any()

    def _claims(self, run_id: str, doing: str) -> Claims:
        return Claims(self._warehouse, run_id, doing, self.patience)

    def _selected(self, state: CatalogState, views: Sequence[str] | None) -> list[str]:
        order = topological(state.working)
        if views is None:
            return order
        wanted = {state.called(view) for view in views}
        check_there(state, sorted(wanted))
        return [v for v in order if v in wanted]

    def compact(self, views: Sequence[str] | None = None) -> Iterator[CompactReport]:
        """Compact the state of views, beside running epochs.

        A rewrite that would lose an epoch's rows is not committed.

        Views whose state may have expired, or belongs to closed groups, are claimed meanwhile, as by a run.
        """
        lock = self._warehouse.maintenance_lock_path
        with ended_spark_is_said(), maintenance_lock(lock, "compacting state", shared=True, patience=self.patience):
            state = self._warehouse.read()
            for name in self._selected(state, views):
                if state.views[name].last_epoch is not None:
                    yield self._compact(state, name)

    def _compact(self, state: CatalogState, name: str) -> CompactReport:
        with self._runs.pool.lend(state.views[name], Workload.FULL) as session:
            try:
                if state.views[name].expiry.until is None and not state.views[name].watermarks:
                    return compact_view(session, self._warehouse, state, state.views[name])
                with self._claims(uuid.uuid4().hex, "expiring state of") as claims:
                    state = claims.take([name])
                    return compact_view(session, self._warehouse, state, state.views[name], is_claimed=True)
            except Exception as error:
                raise ends_the_run(error, [name]) or explained(name, None, error) from error

    def vacuum(
        self, views: Sequence[str] | None = None, *, epochs: int | None = None, hours: int = RETAINED_HOURS
    ) -> Iterator[VacuumReport]:
        """Delete the files of views, state and catalog that no retained epoch needs; see :func:`.jobs.run.vacuum.vacuum`.

        Raises
        ------
        EpochError : a run over these views, or a compaction, goes on for longer than there was time to wait.
        """
        lock = self._warehouse.maintenance_lock_path
        with (
            ended_spark_is_said(),
            self._claims(uuid.uuid4().hex, "deleting old files of") as claims,
            maintenance_lock(lock, "deleting old files", shared=False, patience=self.patience),
        ):
            state = self._warehouse.read()
            names = self._selected(state, views)
            # Nobody reads what is deleted: views over these go on from older epochs of them.
            state = claims.take(with_dependents(state, names))
            yield from vacuum(new_session(self._spark), self._warehouse, state, names, epochs=epochs, hours=hours)

    @ended_spark_is_said()
    def verify(self, views: Sequence[str] | None = None, *, sample: int | None = None) -> list[VerifyReport]:
        """Compare views, at their last epochs, with their queries run in full.

        Parameters
        ----------
        sample : how many keys of each view are compared; all rows are without it.
        """
        if sample is not None and sample < 1:
            raise DeclarationError(f"a sample of {sample} keys says nothing: take 1 or more")
        state, spark = self._warehouse.read(), self._spark
        return [verify_view(spark, self._warehouse, state, state.views[n], sample) for n in self._selected(state, views)]

    @ended_spark_is_said()
    def check(self, views: Sequence[str] | None = None, names: Collection[str] | None = None) -> list[CheckReport]:
        """Make the checks that views declare, on the last epoch that each view has reached.

        Parameters
        ----------
        names : of the checks; all by default.

        Raises
        ------
        DeclarationError : there is no such view, or a view has no such check.
        """
        state, found = self._warehouse.read(), list[CheckReport]()
        for name in self._selected(state, views):
            found += check_view(self._spark, self._warehouse, state, state.views[name], self._clock, names)
        return found

    @ended_spark_is_said()
    def full_recompute_seconds(self, views: Sequence[str]) -> dict[str, float]:
        """Seconds that each view's query takes in full, written as a new Delta table."""
        state = self._warehouse.read()
        return {name: recompute_seconds(self._spark, self._warehouse, state, state.view(name)) for name in views}

    @ended_spark_is_said()
    def stream_key_unique(self, versions: Mapping[str, int | None]) -> list[KeyReport]:
        """Count duplicate keys of published views (0 is right), all views together.

        Parameters
        ----------
        versions : of the published table of each view; ``None``: that of the last epoch which the view has reached.
        """
        return check_keys(self._spark, self._warehouse, self._warehouse.read(), versions)


def _with_malformed(report: ViewReport, state: CatalogState, ingested: Mapping[str, Ingested]) -> ViewReport:
    """The report of a view with malformed records that this run has read of folders."""
    view = state.working.views.get(report.view)
    reads = () if view is None else view.reads  # one that another run has made since, and left unfinished
    found = {name: ingested[name] for name in reads if name in ingested and ingested[name].malformed}
    remarks = tuple(
        f"{name}: {read.malformed:,} of {read.malformed + read.rows:,} records are malformed; they are in "
        f"{table_reference(read.malformed_path)}"
        for name, read in found.items()
    )
    return replace(report, malformed_records=sum(read.malformed for read in found.values()), remarks=remarks)
