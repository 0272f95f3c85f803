"""A warehouse: the folder of sources, views, state and catalog.

Opening one needs no JVM.

::

    <warehouse>/sources/<name>            managed Delta sources
    <warehouse>/sources/<name>-<digest>   those whose rows come from a folder of files (:mod:`.jobs.sources.folder_tables`)
    <warehouse>/views/<name>              published views (Delta, change data feed on)
    <warehouse>/_relstate/catalog         the catalog
    <warehouse>/_relstate/plans/          plans of views, one file each
    <warehouse>/_relstate/state/<view>/   state of a view, one Delta table a generation
    <warehouse>/_relstate/indexes/<source>/<column>  an index of a source, a Delta table
    <warehouse>/_relstate/holders/        locks of the processes that hold claims
    <warehouse>/_relstate/maintenance.lock  held while state is compacted or vacuumed
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import quote

from relstate_dagster.jobs.catalog.entries import SourceEntry, ViewEntry, managed_path
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.store import CatalogStore
from relstate_dagster.jobs.declare import check_name
from relstate_dagster.jobs.declare.model import FileFolder
from relstate_dagster.jobs.engine.cache import cache_folder
from relstate_dagster.jobs.engine.functions import UserFunctions
from relstate_dagster.jobs.sources.protocol import Source
from relstate_dagster.jobs.sources.registry import open_source
from relstate_dagster.jobs.sources.source_index import SourceIndex
from relstate_dagster.jobs.targets.protocol import Target
from relstate_dagster.jobs.targets.registry import open_target
from relstate_dagster.state_lib.lake.address import Address


class Warehouse:
    """Paths and catalog of one warehouse.

    Parameters
    ----------
    path : the folder, or an object store's address.
    functions : the callable that registers the functions that views may call besides Spark's own, as
        ``package.module:callable``; see :mod:`.jobs.engine.functions`.
    """

    def __init__(self, path: str | os.PathLike[str], functions: str | None = None) -> None:
        address = Address.parse(path)
        self.is_local = address.is_local
        self.root = address.spark
        self.functions = UserFunctions(functions) if functions else None
        self.catalog = CatalogStore(self.root)

    @property
    def holders_path(self) -> Path:
        """Folder of the locks of this machine's claim holders.

        In its cache, if the warehouse is not local.
        """
        if self.is_local:
            return Path(self.root) / "_relstate" / "holders"
        return cache_folder() / "holders" / hashlib.sha256(self.root.encode()).hexdigest()[:16]

    @property
    def maintenance_lock_path(self) -> Path | None:
        """The lock file that compactions share, and that a vacuum has alone."""
        return Path(self.root) / "_relstate" / "maintenance.lock" if self.is_local else None

    def read(self) -> CatalogState:
        """The catalog's newest state."""
        return self.catalog.read()

    def inside(self, path: str) -> str:
        """A path in the warehouse, without where the warehouse lies."""
        return path.removeprefix(f"{self.root}/")

    def source_path(self, name: str, folder: FileFolder | None = None) -> str:
        """Path of a managed source, or of the table with a folder's rows."""
        return managed_path(self.root, check_name(name), folder)

    def target(self, view: str) -> Target:
        """The published table of a view."""
        return open_target("delta", view, f"{self.root}/views/{check_name(view)}")

    def state_path(self, view: ViewEntry) -> str:
        """Path of the state of a view's generation."""
        return f"{self.states_path(view.name)}/{view.generation}"

    def states_path(self, view: str) -> str:
        """Path of the state of all of a view's generations."""
        return f"{self.root}/_relstate/state/{check_name(view)}"

    def index_path(self, source: str, column: str) -> str:
        """Path of a source's index by a column.

        Its folder has no character that an address would escape.
        """
        return f"{self.indexes_path}/{check_name(source)}/{quote(column, safe='').replace('%', '+')}"

    @property
    def indexes_path(self) -> str:
        """Path of all indexes of sources."""
        return f"{self.root}/_relstate/indexes"

    def index(self, source: SourceEntry, column: str) -> SourceIndex:
        """The declared index of a source by a column, built or not."""
        return SourceIndex(self.index_path(source.name, column), column)

    def source(self, entry: SourceEntry) -> Source:
        """The reader of a registered source."""
        return open_source(entry.kind, entry.name, entry.path, entry.primary_key)
