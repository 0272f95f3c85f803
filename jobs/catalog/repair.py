"""Going back to the last version of a catalog that can be read.

The catalog is then older than the tables of the views, like one from a backup. The next run takes back what views have
committed since, and computes it again (:mod:`.jobs.targets.chain`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.store import CatalogStore
from relstate_dagster.state_lib.errors import RelstateError, WarehouseError
from relstate_dagster.state_lib.lake.files import files_in
from relstate_dagster.state_lib.lake.folders import move_folder

_COMMIT: Final = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, slots=True)
class Repaired:
    """The catalog version that a repair restored, and the path of the damaged catalog."""

    version: int
    newest: int
    kept_at: str
    state: CatalogState


def repair(root: str, now: datetime) -> Repaired | None:
    """Restore the last readable catalog version; ``None`` if the newest one is readable.

    The damaged catalog is kept beside it. No run may be at work meanwhile.

    Raises
    ------
    WarehouseError : none can be read.
    """
    store = CatalogStore(root)
    try:
        store.read()
    except WarehouseError:
        pass
    else:
        return None
    versions = _versions(store.path)
    found = next((state for state in (_read(root, version) for version in versions) if state is not None), None)
    if found is None:
        raise WarehouseError(
            f"no version of the catalog at {store.path} can be read: restore the folder from a backup, or delete it and "
            "declare sources and views again. relstate run declares those of a project. Views are then built from their sources"
        )
    kept_at = f"{store.path}-damaged-{now:%Y%m%dT%H%M%S}"
    move_folder(store.path, kept_at)
    state = CatalogStore(root).write(replace(found, version=-1))
    return Repaired(found.version, versions[0], kept_at, state)


def _versions(path: str) -> list[int]:
    """The versions in the log of a table, newest first."""
    found = (_COMMIT.fullmatch(info.base_name) for info in files_in(f"{path}/_delta_log"))
    return sorted((int(match[1]) for match in found if match is not None), reverse=True)


def _read(root: str, version: int) -> CatalogState | None:
    """The state and plans of a version; ``None`` if one is unreadable."""
    try:
        state = CatalogStore(root).at(version)
        for view in (*state.views.values(), *state.rebuilds.values()):
            view.plan  # noqa: B018 - reads it
    except RelstateError:
        return None
    return state
