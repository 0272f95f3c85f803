"""The catalog's contents as one plain value, and how concurrent changes are put together."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from relstate_dagster.jobs.catalog.entries import (
    Claim,
    EpochEntry,
    PlainViewEntry,
    Problem,
    SourceEntry,
    ViewEntry,
    ViewVersions,
    changed_date,
)
from relstate_dagster.jobs.declare.names import as_declared
from relstate_dagster.jobs.plan.nodes import depends_on_time
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.state_lib.constants import FORMAT_VERSION
from relstate_dagster.state_lib.errors import DeclarationError, EpochError

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")

#: The fields of a state that hold one entry for each name.
_BY_NAME: Final = ("sources", "plain_views", "views", "epochs", "rebuilds", "claims", "garbage")
_COUNTERS: Final = ("next_table_id", "next_epoch")


class ConcurrentCatalogChange(EpochError):
    """Another run changed the same entries of the catalog between a read and a write."""


@dataclass(frozen=True, slots=True)
class CatalogState:
    """Everything the catalog holds, as of one of its versions.

    ``views`` are what readers see. ``rebuilds`` are views that are to be built again, each beside the one that readers see
    until it is complete. ``epochs`` are the complete ones that some view needs; those under way are in ``claims``, by the id
    of the holder. ``garbage`` are folders of what was dropped, with the id of the table in each, until they are deleted.
    """

    version: int = -1
    format_version: int = FORMAT_VERSION
    next_table_id: int = 1
    next_epoch: int = 1
    sources: Mapping[str, SourceEntry] = field(default_factory=dict)
    plain_views: Mapping[str, PlainViewEntry] = field(default_factory=dict)
    views: Mapping[str, ViewEntry] = field(default_factory=dict)
    epochs: Mapping[int, EpochEntry] = field(default_factory=dict)
    rebuilds: Mapping[str, ViewEntry] = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    garbage: Mapping[str, str] = field(default_factory=dict)

    @property
    def last_pins(self) -> dict[str, Pin]:
        """The newest pin of each source."""
        views = (*self.views.values(), *self.rebuilds.values())
        slices = [view.built_until for view in views if view.built_until is not None]
        pins: dict[str, Pin] = {}
        for epoch in sorted([*self.epochs.values(), *slices], key=lambda epoch: epoch.epoch):
            pins.update({name: pin.whole for name, pin in epoch.pins.items()})
        return pins

    def versions_at(self, view: str) -> ViewVersions | None:
        """The versions of a view at the newest epoch it has reached."""
        name = self.called(view)
        last = self.views[name].last_epoch
        return None if last is None else self.epochs[last].versions.get(name)

    def versions_in(self, epoch: EpochEntry) -> dict[str, ViewVersions]:
        """Versions of views that do not take part in an epoch, or have reached it."""
        found = dict(epoch.versions)
        for name in self.views:
            known = self.versions_at(name)
            if known is not None and name not in epoch.views:
                found.setdefault(name, known)
        return found

    def last_of(self, view: ViewEntry) -> EpochEntry | None:
        """The epoch that a view's next one builds on: its newest, or its last slice's.

        Raises
        ------
        EpochError : the catalog has no such epoch.
        """
        if view.last_epoch is None:
            return view.built_until
        entry = self.epochs.get(view.last_epoch)
        if entry is None:
            raise EpochError(f"epoch {view.last_epoch} of view {view.name} is not in the catalog; rebuild with --full-refresh")
        return entry

    def changed_date(self, view: ViewEntry, instant: datetime) -> str | None:
        """Say that the date changed since a view's last epoch, where rows depend on it."""
        last = self.last_of(view) if view.plan.is_of_a_day else None
        return None if last is None else changed_date(view, last.instant, instant)

    def moves_with_time(self, view: ViewEntry, instant: datetime) -> bool:
        """Whether a view may change by an instant though nothing that it reads does."""
        return depends_on_time(view.plan) or self.changed_date(view, instant) is not None

    def called(self, view: str) -> str:
        """The name of a view as it was declared, found in any case."""
        return as_declared(view, self.views)

    def view(self, name: str) -> ViewEntry:
        """The view of a name, in any case.

        Raises
        ------
        DeclarationError : there is none.
        """
        found = self.views.get(self.called(name))
        if found is None:
            known = ", ".join(sorted(self.views)) or "none"
            raise DeclarationError(f"no materialized view named {name}; there are {known}")
        return found

    @property
    def working(self) -> CatalogState:
        """The state as a run sees it: views to be rebuilt are at their beginning."""
        return replace(self, views={**self.views, **self.rebuilds})

    def with_view(self, view: ViewEntry) -> CatalogState:
        """The state with a view added or replaced."""
        return replace(self, views={**self.views, view.name: view})

    def with_rebuild(self, view: ViewEntry) -> CatalogState:
        """The state with a view to be rebuilt.

        A view that readers do not see yet is replaced.
        """
        if self.views[view.name].last_epoch is None:
            return self.with_view(view)
        return replace(self, rebuilds={**self.rebuilds, view.name: view})

    def with_problem(self, name: str, problem: Problem | None) -> CatalogState:
        """The state with the reason for which a view was left behind."""
        rebuilds = {n: replace(v, problem=problem) if n == name else v for n, v in self.rebuilds.items()}
        return replace(self, views={**self.views, name: replace(self.views[name], problem=problem)}, rebuilds=rebuilds)

    def with_claim(self, claim: Claim) -> CatalogState:
        """The state with a claim added or replaced."""
        return replace(self, claims={**self.claims, claim.id: claim})

    def without_claim(self, holder: str) -> CatalogState:
        """The state without the claim of a holder."""
        return replace(self, claims={k: v for k, v in self.claims.items() if k != holder})

    def with_source(self, source: SourceEntry) -> CatalogState:
        """The state with a source added or replaced."""
        return replace(self, sources={**self.sources, source.name: source})

    def with_plain_view(self, view: PlainViewEntry) -> CatalogState:
        """The state with a plain view added or replaced."""
        return replace(self, plain_views={**self.plain_views, view.name: view})

    def without(self, name: str) -> CatalogState:
        """The state without a source, view or plain view.

        Claims that have other views as well are kept.
        """
        claims = {k: replace(c, views=tuple(v for v in c.views if v != name)) for k, c in self.claims.items()}
        return replace(
            self,
            sources={k: v for k, v in self.sources.items() if k != name},
            views={k: v for k, v in self.views.items() if k != name},
            plain_views={k: v for k, v in self.plain_views.items() if k != name},
            rebuilds={k: v for k, v in self.rebuilds.items() if k != name},
            claims={k: c for k, c in claims.items() if c.views},
        )

    def with_epoch(self, epoch: EpochEntry) -> CatalogState:
        """The state with an epoch added or replaced.

        Epochs without references are forgotten.
        """
        epochs = {**self.epochs, epoch.epoch: epoch}
        needed = {e for v in self.views.values() for e in v.epochs} | {epoch.epoch}
        newest = max(epochs)
        kept = {n: e for n, e in epochs.items() if n in needed or n == newest}
        return replace(self, epochs=kept, next_epoch=max(self.next_epoch, epoch.epoch + 1))

    def dependents(self, name: str) -> list[str]:
        """Views and plain views that read a source or view directly."""
        return sorted(v.name for v in self.views.values() if name in v.reads)


def changed_entries(base: Mapping[_K, _V], state: Mapping[_K, _V]) -> dict[_K, _V | None]:
    """Entries of one state that differ from another's, by name.

    Removed ones are ``None``.
    """
    found: dict[_K, _V | None] = {k: v for k, v in state.items() if base.get(k) is not v and base.get(k) != v}
    found.update(dict.fromkeys(k for k in base if k not in state))
    return found


def rebased(base: CatalogState, state: CatalogState, newest: CatalogState) -> CatalogState:
    """A change between two states, on top of others' changes of the first.

    Raises
    ------
    ConcurrentCatalogChange : they have changed the same entries.
    """
    if newest is base or newest.version == base.version:
        return replace(state, version=newest.version)
    merged: dict[str, Any] = {}
    for kind in _BY_NAME:
        ours = changed_entries(getattr(base, kind), getattr(state, kind))
        theirs = getattr(newest, kind)
        for name in ours:
            if theirs.get(name) != getattr(base, kind).get(name):
                raise ConcurrentCatalogChange(
                    f"another run has changed {name} at the same time; nothing was written, run again"
                )
        entries = {**theirs, **ours}
        merged[kind] = {name: entry for name, entry in entries.items() if entry is not None}
    for counter in _COUNTERS:
        before, ours, theirs = (getattr(s, counter) for s in (base, state, newest))
        if before not in (ours, theirs):
            raise ConcurrentCatalogChange("another run has given out ids at the same time; nothing was written, run again")
        merged[counter] = ours if ours != before else theirs
    return replace(newest, **merged)
