"""Inputs of one view's epoch: change sets of its sources and upstream views."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.catalog.entries import EpochEntry, ViewEntry, ViewVersions
from relstate_dagster.jobs.catalog.relations import state_column, view_columns
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.operators.z_sets import consolidate
from relstate_dagster.jobs.view_epoch.pinned_sources import PinnedSources
from relstate_dagster.jobs.view_epoch.shared_reads import ReadKey, SourceReads, scanned_columns
from relstate_dagster.jobs.view_epoch.sizes import InputSizes
from relstate_dagster.jobs.view_epoch.source_lookups import SourceLookups
from relstate_dagster.state_lib.constants import EPOCH, STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.errors import EpochError
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.row_sums import columns_of_schema
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.state_store import StateStore


@dataclass(slots=True)
class EpochInputs:
    """The relations that one view reads at one epoch (:class:`.jobs.operators.relations.Relations`).

    Parameters
    ----------
    spark : the session that frames belong to.
    versions : what the upstream views have come to in this epoch, and in the epochs before.
    reads : what the views of a run share of what they read of sources.
    """

    spark: SparkSession
    warehouse: Warehouse
    catalog: CatalogState
    view: ViewEntry
    epoch: EpochEntry
    versions: Mapping[str, ViewVersions]
    reads: SourceReads = field(default_factory=SourceReads)
    sources: PinnedSources = field(init=False)
    lookups: SourceLookups = field(init=False)
    sizes: InputSizes = field(init=False)

    def __post_init__(self) -> None:
        self.sources = PinnedSources(self.warehouse, self.catalog, self.view, self.epoch, self.reads)
        self.lookups = SourceLookups(self.sources)
        self.sizes = InputSizes(self.sources, self.lookups, self.versions)

    def within(self, session: SparkSession) -> EpochInputs:
        """The same inputs, as frames of another session."""
        bound = copy(self)
        bound.spark = session
        return bound

    @property
    def since(self) -> EpochEntry | None:
        """The epoch that the view reached last."""
        return self.sources.since

    def changes(self, name: str) -> DataFrame | None:
        """The change set of a source or an upstream view.

        For a view that was left behind it is netted first: a row that came and went in between, which may be the very one that
        could not be computed, is not even looked at.
        """
        changes = self._view_changes(name) if self._is_view(name) else self._source_changes(name)
        if changes is None or self.since is None or self.view.problem is None:
            return changes
        read = scanned_columns(self.view)[name]
        columns = [column for column in columns_of_schema(changes.schema) if column.name in read]
        # Computed here and now: Spark would push what a query computes of a row below the sum.
        return consolidate(changes, columns).localCheckpoint()

    def _source_changes(self, name: str) -> DataFrame | None:
        source, until, since = self.sources.source(name), self.sources.pin(name), self.since
        columns = scanned_columns(self.view)[name]
        made = self.sources.generated_columns(name)
        if since is None:
            return self.sources.as_read(name, source.all_rows(self.spark, until, made))
        before = self.sources.pin_of(since, name)
        if before.is_same(until):
            return None
        found = self.sources.range(name, before)
        changes = self.reads.shared.changes(
            self.spark,
            ReadKey(name, before.identity, until.identity, made),
            found.changed_bytes,
            columns,
            lambda: source.changes(self.spark, before, until, found, made),
        )
        return None if changes is None else self.sources.as_read(name, changes)

    def rows(self, name: str, lookup_keys: LookupKeys | None) -> DataFrame:
        """Rows of a relation as of this epoch, with weights.

        With keys, those within their values at least.
        """
        return self._view_rows(name, lookup_keys) if self._is_view(name) else self.lookups.rows(self.spark, name, lookup_keys)

    def rows_between(self, name: str, column: str, lower: Column, upper: Column) -> DataFrame:
        """Rows of a source with a column between two values, with weights."""
        rows = self.sources.snapshot(name, self.spark)
        return rows.where(F.col(quoted(column)).between(lower, upper)).withColumn(WEIGHT, F.lit(1).cast("bigint"))

    # Of views, the log tells nothing of this: their state has a row more than once.

    def provably_absent_before(self, name: str, lookup_keys: LookupKeys) -> bool:
        """Whether no row of the last epoch is within some values, if known."""
        return not self._is_view(name) and self.lookups.provably_absent_before(name, lookup_keys)

    def row_count(self, name: str) -> int | None:
        """Rows of a relation as of this epoch; ``None`` if unknown."""
        return None if self._is_view(name) else self.lookups.row_count(name)

    def rows_read(self, name: str, lookup_keys: LookupKeys | None) -> float | None:
        """About how many rows a lookup of some values reads, if known."""
        return None if self._is_view(name) else self.lookups.rows_read(name, lookup_keys)

    def sample(self, name: str) -> tuple[DataFrame, int] | None:
        """Some rows of a relation, with weights, and their number, if known."""
        return None if self._is_view(name) else self.lookups.sample(self.spark, name)

    def snapshot(self, name: str, session: SparkSession) -> DataFrame:
        """A relation as of this epoch, with the columns that a query sees."""
        if not self._is_view(name):
            return self.sources.snapshot(name, session)
        upstream, versions = self.catalog.views[name], self.versions.get(name)
        assert upstream.plan is not None
        if versions is None or versions.view_version is None:
            raise EpochError(f"view {name} has no rows published at epoch {self.epoch.epoch}")
        rows = self.warehouse.target(name).rows(session, versions.view_version)
        return rows.select(*(quoted(o.name) for o in upstream.plan.output))

    def _is_view(self, name: str) -> bool:
        return name in self.catalog.views

    def _view_changes(self, name: str) -> DataFrame | None:
        upstream = self.catalog.views[name]
        versions = self.versions.get(name)
        if versions is None or versions.state_version is None:
            return None
        if self.sizes.is_unchanged(name, versions):
            return None
        since = self.view.last_epoch
        runs = self._view_runs(upstream, versions.state_version, None)
        if since is not None:
            runs = runs.where(F.col(EPOCH) > since)
        return runs.select(*view_columns(upstream), F.col(STATE_WEIGHT).alias(WEIGHT))

    def _view_rows(self, name: str, lookup_keys: LookupKeys | None) -> DataFrame:
        upstream, versions = self.catalog.views[name], self.versions.get(name)
        if versions is None or versions.state_version is None:
            raise EpochError(f"view {name} has no rows at epoch {self.epoch.epoch}")
        if lookup_keys is not None:
            lookup_keys = lookup_keys.renamed(partial(state_column, upstream))
        runs = self._view_runs(upstream, versions.state_version, lookup_keys)
        return runs.select(*view_columns(upstream), F.col(STATE_WEIGHT).alias(WEIGHT))

    def _view_runs(self, upstream: ViewEntry, state_version: int, lookup_keys: LookupKeys | None) -> DataFrame:
        """The unmerged rows of an upstream view up to this epoch."""
        store = StateStore(self.spark, self.sizes.state_of(upstream), upstream.tables)
        own = upstream.tables[-1]
        table = store.storage_table(own.table_id, version=state_version, epoch=self.epoch.epoch)
        return table.runs([c.name for c in own.schema.columns], lookup_keys)
