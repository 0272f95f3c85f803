"""Whether the tables of a view are as the catalog knows them: what ``status`` looks at, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.catalog.entries import CatalogState, ViewEntry
from jobs.epoch.chain import Chain, Recorded
from jobs.epoch.publish import published_chain
from jobs.epoch.view_epoch import state_chain
from jobs.warehouse import Warehouse
from state_lib.errors import StateError
from state_lib.lake.folders import is_table
from state_lib.lake.table import OpenedTable
from state_lib.state_files import StateFiles


def problems_of_tables(warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> Iterator[str]:
    """What somebody else, or a damaged disk, has done to a view's state and to its published table."""
    for chain, path, recorded in _chains(warehouse, state, view):
        yield from _problem(chain, path, recorded)


def check_tables(warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> None:
    """Look whether the last epoch of a view is still in its tables, as far as that costs nothing.

    Raises
    ------
    StateError : it is not.
    """
    for chain, _, recorded in _chains(warehouse, state, view):
        chain.check_not_empty(recorded)


def _chains(warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> Iterator[tuple[Chain, str, Recorded]]:
    """The tables of a view, as they are, and what the catalog has recorded of each."""
    versions = state.versions_at(view.name)
    if versions is not None:
        files = StateFiles(warehouse.state_path(view))
        yield state_chain(files, view), files.path, Recorded(versions.state_version, versions.digest)
        table = OpenedTable(warehouse.view_path(view.name))
        yield published_chain(table, view.name), table.path, Recorded(versions.view_version, versions.published)


def _problem(chain: Chain, path: str, recorded: Recorded) -> Iterator[str]:
    if not is_table(path):
        yield f"there is no Delta table at {path} any more; {chain.rebuild}"
        return
    try:
        since = chain.since(recorded)
    except StateError as error:
        yield str(error)
    else:
        if since.foreign is not None:
            yield f"{chain.said(since)}; the next run that has something to publish says what to do"
