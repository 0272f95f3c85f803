"""Settings and shared state of one run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.claims import Claims
from relstate_dagster.jobs.catalog.entries import EpochEntry, SourceEntry, ViewEntry, ViewVersions
from relstate_dagster.jobs.catalog.protocol import ClaimLost
from relstate_dagster.jobs.catalog.state import CatalogState, ConcurrentCatalogChange
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine.instants import Clock
from relstate_dagster.jobs.engine.workloads import Workload
from relstate_dagster.jobs.inspect.health import check_functions, check_tables
from relstate_dagster.jobs.run.failed_views import FailedViews
from relstate_dagster.jobs.run.ingest import Ingested
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.jobs.sources.protocol import Source
from relstate_dagster.jobs.view_epoch.cancellation import CancelJobs
from relstate_dagster.jobs.view_epoch.error_messages import ends_the_run
from relstate_dagster.jobs.view_epoch.inputs import EpochInputs
from relstate_dagster.jobs.view_epoch.key_check import CheckedKey, check_primary_keys
from relstate_dagster.jobs.view_epoch.reports import ViewReport
from relstate_dagster.jobs.view_epoch.shared_reads import SourceReads
from relstate_dagster.jobs.view_epoch.view_run import ViewRuns
from relstate_dagster.state_lib.errors import RelstateError


@dataclass(slots=True)
class RunContext:
    """One run of some views.

    Parameters
    ----------
    spark : any session with Delta.
    runs : brings single views to an epoch.
    claims : of the run.
    parallel_views : how many views are computed at the same time.
    clock : asked once an epoch for its instant.
    tell : called with what begins, and with how far a view is that takes long.
    interrupted : called between steps; it may raise, which ends the run.
    cancel_jobs : cancels the Spark jobs of the run.
    until : versions of sources, by name, that the run reads up to at most.
    strict : check what every operator gives.
    reads : what the run knows of its sources.
    left : the views that it leaves behind.
    ingested : what it has read of folders, by source.
    checked_keys : the primary keys that it has checked.
    unplannable : why views cannot be planned any more whose plans are of another version of the planner.
    """

    spark: SparkSession
    warehouse: Warehouse
    runs: ViewRuns
    claims: Claims
    parallel_views: int
    clock: Clock
    tell: Callable[[str], None]
    interrupted: Callable[[], None]
    cancel_jobs: CancelJobs
    until: Mapping[str, int] = field(default_factory=dict)
    strict: bool = False
    reads: SourceReads = field(default_factory=SourceReads)
    left: FailedViews = field(default_factory=FailedViews)
    ingested: dict[str, Ingested] = field(default_factory=dict)
    checked_keys: set[CheckedKey] = field(default_factory=set)
    unplannable: dict[str, RelstateError] = field(default_factory=dict)

    def source(self, entry: SourceEntry) -> Source:
        """The reader of a source, one for the whole run."""
        return self.reads.source(self.warehouse, entry)

    def inputs(
        self, state: CatalogState, view: ViewEntry, epoch: EpochEntry, versions: Mapping[str, ViewVersions] | None = None
    ) -> EpochInputs:
        """Inputs of a view in an epoch.

        ``versions`` are those of upstream views in the same epoch.
        """
        return self.runs.inputs(state, view, epoch, self.reads, versions)

    def check_inputs(self, state: CatalogState, view: ViewEntry, epoch: EpochEntry) -> None:
        """Raise if a view cannot read its inputs or its own last epoch."""
        if view.name in self.unplannable:
            raise self.unplannable[view.name]
        check_tables(self.warehouse, state, view)
        if view.functions:
            with self.runs.pool.lend(view, Workload.FULL) as session:
                check_functions(view, session, self.warehouse.functions)
        inputs = self.inputs(state, view, epoch)
        found = inputs.check()
        keyed = [n for n in view.reads if n in state.sources and state.sources[n].primary_key]
        if keyed:
            with self.runs.pool.lend(view, Workload.FULL) as session:
                check_primary_keys(session, state, inputs, keyed, found, self.checked_keys)

    def failed(
        self, view: ViewEntry, error: Exception, epoch: int | None = None, pins: Mapping[str, Pin] | None = None
    ) -> ViewReport:
        """Record a view that failed, with the versions of its sources."""
        return self.left.failed(view, error, epoch, identities(pins or {}, view))

    def raise_if_fatal(self, error: Exception, at_work: Collection[str] = ()) -> None:
        """Raise an error that no view caused.

        The run ends, and the next one settles the epoch.

        Parameters
        ----------
        at_work : the views that were computed just then.
        """
        self.interrupted()
        if isinstance(error, ConcurrentCatalogChange | ClaimLost):
            raise error
        ended = ends_the_run(error, at_work)
        if ended is not None:
            raise ended from error


def identities(pins: Mapping[str, Pin], view: ViewEntry) -> dict[str, str]:
    """Names the versions of a view's sources, as far as they are pinned."""
    return {name: pins[name].identity for name in view.reads if name in pins}
