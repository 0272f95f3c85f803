"""The sources of one view as of an epoch: their readers, the versions that epochs have pinned, and what changed between."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.catalog.entries import CatalogState, EpochEntry, ViewEntry
from jobs.epoch.shared_reads import SourceReads
from jobs.planner.nodes import Scan, walk
from jobs.sources.delta_source import ChangeRange, DeltaSource, Pin
from jobs.warehouse import Warehouse
from state_lib.errors import EpochError, SourceError


@dataclass(frozen=True, slots=True)
class PinnedSources:
    """The sources that a view reads at one epoch.

    Parameters
    ----------
    reads : what the views of a run share of what they read of sources.
    """

    warehouse: Warehouse
    catalog: CatalogState
    view: ViewEntry
    epoch: EpochEntry
    reads: SourceReads

    @property
    def since(self) -> EpochEntry | None:
        """The epoch that the view reached last.

        Raises
        ------
        EpochError : the catalog has no such epoch.
        """
        last = self.view.last_epoch
        if last is None:
            return None
        entry = self.catalog.epochs.get(last)
        if entry is None:
            raise EpochError(f"epoch {last} of view {self.view.name} is not in the catalog; rebuild with --full-refresh")
        return entry

    def source(self, name: str) -> DeltaSource:
        """The reader of a source, one for all views of a run.

        Raises
        ------
        SourceError : there is no such source.
        """
        entry = self.catalog.sources.get(name)
        if entry is None:
            raise SourceError(f"view {self.view.name} reads {name}, which is neither a source nor a view any more")
        return self.reads.source(self.warehouse, entry)

    def pin(self, name: str) -> Pin:
        """The version of a source that this epoch reads."""
        return self.pin_of(self.epoch, name)

    @staticmethod
    def pin_of(epoch: EpochEntry, name: str) -> Pin:
        """The version of a source that an epoch has pinned.

        Raises
        ------
        EpochError : it has pinned none.
        """
        pin = epoch.pins.get(name)
        if pin is None:
            raise EpochError(f"epoch {epoch.epoch} has no pinned version of source {name}; rebuild with --full-refresh")
        return pin

    def range(self, name: str, since: Pin) -> ChangeRange:
        """What has changed in a source between some version and this epoch's.

        Raises
        ------
        SourceError : that cannot be read, or not any more.
        """
        return self.reads.range(self.source(name), since, self.pin(name), append_only=lambda: self._reads_append_only(name))

    def changed_since(self, name: str, since: Pin) -> ChangeRange | None:
        """As :meth:`range`; ``None`` where that cannot be read."""
        try:
            return self.range(name, since)
        except SourceError:
            return None

    def _reads_append_only(self, name: str) -> bool:
        assert self.view.plan is not None
        return any(isinstance(n, Scan) and n.relation == name and n.append_only for n in walk(self.view.plan))
