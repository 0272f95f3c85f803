"""``until_version``: sources that a run reads no further than a version.

An epoch pins the newest version of a source, or the one that its run names, if that is older. A view never reads backwards:
a version before the one that it has read is refused, unless the view is rebuilt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from relstate_dagster.jobs.catalog.entries import EpochEntry, SourceEntry, ViewEntry
from relstate_dagster.jobs.catalog.relations import topological, with_upstream_views
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.declare.changelogs import changelog_of
from relstate_dagster.jobs.declare.names import as_declared
from relstate_dagster.jobs.sources.protocol import Source
from relstate_dagster.state_lib.errors import DeclarationError, SourceError


class Opens(Protocol):
    """Opens the table of a source."""

    def __call__(self, entry: SourceEntry) -> Source:
        """Return its reader."""


def named_sources(until_version: Mapping[str, int], sources: Collection[str]) -> dict[str, int]:
    """Versions by the sources' names in the catalog.

    A table of changes is also found by the name of its view.

    Raises
    ------
    DeclarationError : there is no such source, or the version is no version.
    """
    found: dict[str, int] = {}
    for name, version in until_version.items():
        source = next((n for n in (as_declared(name, sources), as_declared(changelog_of(name), sources)) if n in sources), None)
        if source is None:
            known = ", ".join(sorted(sources)) or "none"
            raise DeclarationError(f"until_version: there is no source named {name}; there are {known}")
        if version < 0:
            raise DeclarationError(f"until_version: {name} = {version} is no version of a Delta table: they count from 0")
        found[source] = version
    return found


def check_reachable(
    state: CatalogState, names: Iterable[str], until_version: Mapping[str, int], open_source: Opens | None = None
) -> None:
    """Check that views can stop at some versions of sources.

    Parameters
    ----------
    state : with views that are to be rebuilt at their beginning.
    names : of the views. Those that the catalog does not know yet have read nothing.
    until_version : by the names of :func:`named_sources`.
    open_source : to look whether the versions are there; that is not done without it.

    Raises
    ------
    SourceError : a version does not exist, or is older than what a view has read.
    """
    selected = {name for name in names if name in state.views}
    for name in list(selected):
        view = state.views[name]
        if view.last_epoch is None and any(n in state.views and n not in selected for n in view.reads):
            below = with_upstream_views(state, name)
            # It begins where the views below it are, or with all of them at a new epoch.
            selected |= set() if reachable_epochs(state, view, until_version) else set(below)
    for name in (n for n in topological(state) if n in selected):
        _check_not_read(state, state.views[name], until_version)
    if open_source is not None:
        for source, version in until_version.items():
            if source in state.sources:
                open_source(state.sources[source]).check_version(version)


def reachable_epochs(state: CatalogState, view: ViewEntry, until_version: Mapping[str, int]) -> list[int]:
    """Later epochs that all upstream views of a view have reached.

    They read no source further than asked for.
    """
    upstream = [state.views[n] for n in view.reads if n in state.views]
    common = set.intersection(*(set(u.epochs) for u in upstream)) if upstream else set()
    later = [e for e in common if view.last_epoch is None or e > view.last_epoch]
    return [e for e in later if not _too_far(state, view, state.epochs[e], until_version)]


def _check_not_read(state: CatalogState, view: ViewEntry, until_version: Mapping[str, int]) -> None:
    if view.last_epoch is None:
        return
    last = state.epochs[view.last_epoch]
    for source in _too_far(state, view, last, until_version):
        raise SourceError(
            f"until_version: view {view.name} has read source {source} up to version {last.pins[source].version} and cannot go "
            f"back to version {until_version[source]}: name a version from there on, or rebuild the view with --full-refresh"
        )


def _too_far(state: CatalogState, view: ViewEntry, epoch: EpochEntry, until_version: Mapping[str, int]) -> list[str]:
    """Sources that a view, or one below it, has read beyond a version."""
    if not until_version:
        return []
    read = {source for name in with_upstream_views(state, view.name) for source in state.views[name].reads}
    return [s for s, version in until_version.items() if s in read and s in epoch.pins and epoch.pins[s].version > version]
