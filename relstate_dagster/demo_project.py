"""The demo, the default project, in a warehouse of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relstate_dagster.jobs.declare import Project
from relstate_dagster.state_lib.errors import DeclarationError

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import Warehouse


def check_is_home_of(project: Project, warehouse: Warehouse) -> None:
    """Keep an unnamed project out of a warehouse with other views.

    Raises
    ------
    DeclarationError : it has, and none of the project's.
    """
    state = warehouse.read()
    known = {*state.views, *state.sources}
    if known and not known & {*(view.name for view in project.views), *project.source_names}:
        raise DeclarationError(
            f"no project is named, and {warehouse.root} has other views than the demo: name a folder of .sql files (--project, "
            "or RELSTATE_PROJECT). Refresh views that relstate sql has made by relstate sql -e REFRESH"
        )
