"""Tables of views compared with the catalog, without Spark, for ``status``."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import Recorded, ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine.functions import UserFunctions, not_registered
from relstate_dagster.jobs.view_epoch.chain import Chain
from relstate_dagster.jobs.view_epoch.publish import published_chain
from relstate_dagster.jobs.view_epoch.view_epoch import state_chain
from relstate_dagster.state_lib.errors import DeclarationError, StateError
from relstate_dagster.state_lib.lake.folders import is_table
from relstate_dagster.state_lib.lake.table import OpenedTable
from relstate_dagster.state_lib.state_files import StateFiles


def problems_of_tables(warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> Iterator[str]:
    """Damage to a view's state and published table, with the remedies."""
    for chain, table, recorded in _chains(warehouse, state, view):
        if not is_table(table.path):
            yield f"there is no Delta table at {table.path} any more; {chain.rebuild}"
            continue
        try:
            since = chain.since(recorded)
        except StateError as error:
            yield str(error)
            continue
        if since.foreign is not None:
            yield chain.changed_by_others(since, recorded)


def check_tables(warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> None:
    """Check that a view's last epoch is still in its tables.

    That costs the sizes of two files.

    Raises
    ------
    StateError : it is not.
    """
    for chain, _, recorded in _chains(warehouse, state, view):
        chain.check_not_empty(recorded)


def check_functions(view: ViewEntry, session: SparkSession, functions: UserFunctions | None) -> None:
    """Look whether a session knows the functions that a view was declared with.

    Raises
    ------
    DeclarationError : one of them is not registered.
    """
    missing = [name for name in view.functions if not session.catalog.functionExists(name)]
    if missing:
        raise DeclarationError(f"view {view.name} calls {', '.join(missing)}, which {not_registered(functions)}")


def _chains(warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> Iterator[tuple[Chain, OpenedTable, Recorded]]:
    """State and published table of a view, each with its recorded commit."""
    versions = state.versions_at(view.name)
    if versions is not None:
        files, published = StateFiles(warehouse.state_path(view)), OpenedTable(warehouse.view_path(view.name))
        yield state_chain(files, view), files.table, versions.state_commit
        yield published_chain(published, view.name), published, versions.published_commit
