"""A view as of an epoch: its inputs, and upstream views as of then."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.catalog.entries import EpochEntry, ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine.workloads import Workload, session_for
from relstate_dagster.jobs.inspect.health import check_functions
from relstate_dagster.jobs.inspect.snapshot import epoch_of
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.jobs.view_epoch.inputs import EpochInputs
from relstate_dagster.jobs.view_epoch.shared_reads import SourceReads
from relstate_dagster.jobs.view_epoch.source_input import pin_of
from relstate_dagster.state_lib.constants import MADE_BY_SOURCES, WEIGHT
from relstate_dagster.state_lib.errors import EpochError, SourceError


@dataclass
class Past:
    """Views of a warehouse as of past epochs, and what they share."""

    spark: SparkSession
    warehouse: Warehouse
    state: CatalogState
    workload: Workload = Workload.FULL
    reads: SourceReads = field(default_factory=SourceReads)
    _sessions: dict[tuple[tuple[str, str], ...], SparkSession] = field(default_factory=dict)
    _views: dict[tuple[str, int], ViewAt] = field(default_factory=dict)
    _names: Iterator[int] = field(default_factory=itertools.count)

    def view_at(self, name: str, until: int) -> ViewAt:
        """A view as of the newest of its epochs up to some one.

        Raises
        ------
        EpochError : it had none by then, or the catalog does not remember.
        """
        epoch = epoch_of(self.state, name, until)
        if (name, epoch) not in self._views:
            entry = self.state.epochs.get(epoch)
            if entry is None:
                raise EpochError(f"epoch {epoch} of view {name} is not in the catalog any more")
            self._views[name, epoch] = ViewAt(self, self.state.views[name], entry)
        return self._views[name, epoch]

    def session(self, view: ViewEntry) -> SparkSession:
        """A session with the settings of a view's plan."""
        settings = tuple(sorted(view.settings.items()))
        if settings not in self._sessions:
            functions = self.warehouse.functions
            opened = session_for(self.spark, view.settings, self.workload, functions, is_local=self.warehouse.is_local)
            self._sessions[settings] = opened
        check_functions(view, self._sessions[settings], self.warehouse.functions)
        return self._sessions[settings]

    def fresh_name(self) -> str:
        """A name that no other column has."""
        return f"__why_{next(self._names)}"


@dataclass(eq=False)
class ViewAt:
    """A view as of an epoch.

    Parameters
    ----------
    plan_rows : the rows of its plan's nodes (:func:`.plan_rows.rows_of`).
    """

    past: Past
    entry: ViewEntry
    epoch: EpochEntry
    plan_rows: Any = None

    def __post_init__(self) -> None:
        self.entry = self.entry.at(self.epoch.instant)

    @cached_property
    def session(self) -> SparkSession:
        """The session that its rows are computed in."""
        return self.past.session(self.entry)

    @cached_property
    def inputs(self) -> EpochInputs:
        """Inputs of the view at that epoch."""
        past = self.past
        return EpochInputs(past.warehouse, past.state, self.entry, self.epoch, self.epoch.versions, past.reads, self.session)

    def is_view(self, relation: str) -> bool:
        """Whether a relation that it reads is a view."""
        return relation in self.past.state.views

    def upstream(self, relation: str) -> ViewAt:
        """An upstream view, as the view read it."""
        return self.past.view_at(relation, self.epoch.epoch)

    def pin(self, source: str) -> Pin:
        """The commit of a source that it read."""
        return self.inputs.source(source).pin

    def source_rows(self, source: str) -> DataFrame:
        """All rows of a source that it read, with the columns that the source makes."""
        read = self.inputs.source(source)
        return read.source.all_rows(self.session, read.pin, read.generated_columns).drop(WEIGHT)

    def table_columns(self, source: str) -> list[str]:
        """The columns of a source's table, as of what it read."""
        return [name for name in self.source_rows(source).columns if name not in MADE_BY_SOURCES]

    def rows(self) -> DataFrame:
        """Its published rows, the hidden key among them."""
        versions = self.epoch.versions.get(self.entry.name)
        if versions is None or versions.view_version is None:
            raise EpochError(f"view {self.entry.name} has no rows published at epoch {self.epoch.epoch}")
        return self.past.warehouse.target(self.entry.name).rows(self.session, versions.view_version)

    def check_readable(self) -> int:
        """Check that everything it read, and published, still exists.

        Returns
        -------
        The bytes of the sources that it and the views below it read.

        Raises
        ------
        EpochError : it is not, and says which version of what.
        SourceError : a source is not known any more.
        """
        versions = self.epoch.versions.get(self.entry.name)
        if versions is not None and versions.view_version is not None:
            target = self.past.warehouse.target(self.entry.name)
            self._check(f"view {self.entry.name}", target.why_unreadable(versions.view_version))
        read_bytes = 0
        for name in self.entry.reads:
            if self.is_view(name):
                read_bytes += self.upstream(name).check_readable()
                continue
            if name not in self.past.state.sources:
                raise SourceError(f"view {self.entry.name} reads {name}, which is neither a source nor a view any more")
            source, pin = self.past.warehouse.source(self.past.state.sources[name]), pin_of(self.epoch, name)
            self._check(f"source {name}", source.why_unreadable(pin))
            read_bytes += source.totals(pin)[0]
        return read_bytes

    def _check(self, what: str, problem: str | None) -> None:
        if problem is not None:
            raise EpochError(f"{what} cannot be read as of epoch {self.epoch.epoch} any more: {problem}")
