"""The folders of a warehouse that only its runs write to."""

from __future__ import annotations

from typing import Final

from relstate_dagster.state_lib.errors import AddressError, DeclarationError
from relstate_dagster.state_lib.lake.address import is_inside

#: Folders with tables that only runs write.
OF_RUNS: Final = ("_relstate", "views")
OWN_FOLDERS: Final = (*OF_RUNS, "sources")


def lies_in(path: str, folder: str) -> bool:
    """Whether a path lies in a folder; false if it is no valid path."""
    try:
        return is_inside(path, folder)
    except AddressError:
        return False


def check_new_table(root: str, path: str) -> None:
    """Check that a new table's location is outside the warehouse's own folders.

    Parameters
    ----------
    root : of the warehouse.

    Raises
    ------
    DeclarationError : it is.
    """
    if any(lies_in(path, f"{root}/{folder}") for folder in OWN_FOLDERS):
        raise refused(root, path)


def refused(root: str, path: str) -> DeclarationError:
    """The error of a statement that would write where only runs write."""
    return DeclarationError(
        f"{path} belongs to the warehouse {root}, and only runs may write to it: the rows of a view follow from its query. "
        "Change the sources, by their names"
    )
