"""Whether a run would find nothing to do, by catalog and logs without a JVM."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from relstate_dagster.jobs.catalog.entries import PlainViewEntry, ViewEntry, is_same_source
from relstate_dagster.jobs.catalog.protocol import to_rebuild
from relstate_dagster.jobs.catalog.relations import topological
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare import Project
from relstate_dagster.jobs.declare.names import as_declared
from relstate_dagster.jobs.inspect.health import check_tables
from relstate_dagster.jobs.plan.nodes import depends_on_time
from relstate_dagster.jobs.registration.registry import declares
from relstate_dagster.jobs.registration.sync import source_entry
from relstate_dagster.jobs.run.freshness import views_behind
from relstate_dagster.jobs.run.until_version import check_reachable, named_sources
from relstate_dagster.jobs.view_epoch.reports import ViewReport, unchanged
from relstate_dagster.state_lib.errors import DeclarationError, StateError
from relstate_dagster.state_lib.lake.folders import is_table


def idle_reports(
    warehouse: Warehouse,
    project: Project,
    names: Collection[str],
    *,
    full_refresh: Collection[str] = (),
    until_version: Mapping[str, int] = MappingProxyType({}),
) -> list[ViewReport] | None:
    """Reports of a run that finds nothing to do; ``None`` if there may be something.

    Parameters
    ----------
    full_refresh, until_version : as of :meth:`.jobs.run.runner.EpochRunner.run`. They are checked here, before the project is
        made known to the warehouse.

    Raises
    ------
    DeclarationError : there is no such view to rebuild, or no such source.
    SourceError : a source has no such version, or a view has read further.
    WarehouseError : the catalog cannot be read.
    """
    state = warehouse.read()
    until = named_sources(until_version, {*project.source_names, *state.sources})
    views = {*(view.name for view in project.views), *state.views}
    wanted = {as_declared(name, views) for name in names}
    full_refresh = [as_declared(name, views) for name in full_refresh]
    unknown = [name for name in full_refresh if name not in views]
    if unknown:
        raise DeclarationError(
            f"no materialized view named {', '.join(unknown)} to rebuild; there are {', '.join(sorted(views)) or 'none'}"
        )
    rebuilt = to_rebuild(state, [name for name in full_refresh if name in state.views])
    check_reachable(rebuilt.working, wanted, until, warehouse.source)
    if full_refresh:
        return None
    if warehouse.functions is not None or not _is_declared(state, warehouse, project):
        return None
    # What another run does, or has left, and files that a drop has left.
    if state.garbage or any(wanted & set(claim.views) for claim in state.claims.values()):
        return None
    entries = [state.views[name] for name in topological(state) if name in wanted]
    if views_behind(warehouse, wanted, state, until) or not all(_is_well(warehouse, state, view) for view in entries):
        return None
    return [unchanged(state, view) for view in entries]


def _is_well(warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> bool:
    """Whether only new commits of its inputs could change a view.

    Its tables are there.
    """
    has_indexes = any(state.sources[name].indexes for name in view.reads if name in state.sources)
    if view.problem is not None or view.functions or has_indexes or depends_on_time(view.plan):
        return False
    try:
        check_tables(warehouse, state, view)
    except StateError:
        return False  # the run says what is wrong with it
    return True


def _is_declared(state: CatalogState, warehouse: Warehouse, project: Project) -> bool:
    """Whether the catalog is what the project declares, and its tables are there."""
    sources = [source_entry(warehouse, source) for source in project.sources]
    plain_views = [PlainViewEntry(plain.name, plain.sql) for plain in project.plain_views]
    return (
        all(is_same_source(state.sources.get(entry.name), entry) and is_table(entry.path) for entry in sources)
        and all(as_declared(name, state.sources) in state.sources for name in project.undeclared)
        and all(state.plain_views.get(plain.name) == plain for plain in plain_views)
        and all(declares(state, view) for view in project.views)
    )
