"""Tables of views compared with the catalog, without Spark, for ``status``."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine.functions import UserFunctions, not_registered
from relstate_dagster.jobs.view_epoch.view_epoch import state_chain
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.state_files import StateFiles


def problems_of_tables(warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> Iterator[str]:
    """Damage to a view's state and published table, with the remedies."""
    versions = state.versions_at(view.name)
    if versions is not None:
        found = (
            state_chain(StateFiles(warehouse.state_path(view)), view).problem(versions.state_commit),
            warehouse.target(view.name).problem(versions.published_commit),
        )
        yield from filter(None, found)


def check_tables(warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> None:
    """Check that a view's last epoch is still in its tables.

    That costs the sizes of two files.

    Raises
    ------
    StateError : it is not.
    """
    versions = state.versions_at(view.name)
    if versions is not None:
        state_chain(StateFiles(warehouse.state_path(view)), view).check_not_empty(versions.state_commit)
        warehouse.target(view.name).check_not_lost(versions.published_commit)


def check_functions(view: ViewEntry, session: SparkSession, functions: UserFunctions | None) -> None:
    """Look whether a session knows the functions that a view was declared with.

    Raises
    ------
    DeclarationError : one of them is not registered.
    """
    missing = [name for name in view.functions if not session.catalog.functionExists(name)]
    if missing:
        raise DeclarationError(f"view {view.name} calls {', '.join(missing)}, which {not_registered(functions)}")
