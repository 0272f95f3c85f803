"""Sources whose rows lie where the warehouse is about to delete files."""

from __future__ import annotations

from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.lake.address import is_inside


def check_kept(base: CatalogState, state: CatalogState, root: str) -> None:
    """Check that no folder to be deleted holds a declared source.

    Parameters
    ----------
    base : the state before; what was to be deleted there already, and had its source already, is passed over.
    root : of the warehouse.

    Raises
    ------
    DeclarationError : names the source, and the folder.
    """
    for inside in state.garbage:
        path = f"{root}/{inside}"
        for source in state.sources.values():
            if inside in base.garbage and source.name in base.sources:
                continue
            places = [source.path] if source.folder is None else [source.path, source.folder.location]
            if any(is_inside(place, path) for place in places):
                raise DeclarationError(
                    f"source {source.name} has its rows in {path}, which would be deleted; drop {source.name} first (with the "
                    "views that read it), or declare it at a copy of the table"
                )
