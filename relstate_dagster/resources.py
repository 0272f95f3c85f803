"""Resources of a run: lazily started Spark, and the warehouse."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

from dagster import ConfigurableResource
from pydantic import Field

from relstate_dagster.jobs.declare import Project
from relstate_dagster.jobs.engine import SparkSettings, create_session
from relstate_dagster.jobs.engine.logs import LogSettings
from relstate_dagster.settings import log_file, stores_for
from relstate_dagster.state_lib.lake.address import Address
from relstate_dagster.state_lib.lake.storage import Store, use_options

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from relstate_dagster.jobs.api import EpochRunner, ViewReport, Warehouse
    from relstate_dagster.server.client import ServerAt
    from relstate_dagster.server.runner import ServerRunner
    from relstate_dagster.server.settings import ServerSettings

#: What the rows of a view are read as.
RowsAs: TypeAlias = Literal["spark", "arrow", "pandas"]


class SparkResource(ConfigurableResource["SparkSession"]):
    """A lazily started Spark session: here, on a cluster, or by Spark Connect."""

    master: str = Field(
        default="",
        description="local[*], a master's URL, or sc://host:port; without one RELSTATE_MASTER decides, else local[*]",
    )
    driver_memory: str = Field(default="2g", description="heap of the driver; ignored by Spark Connect")
    conf: dict[str, str] = Field(default_factory=dict, description="further Spark settings")

    def session(self, logs: LogSettings | None = None, stores: Collection[Store] = ()) -> SparkSession:
        """Return the process's session, starting it on the first call."""
        return create_session(self.settings(logs, stores))

    def settings(self, logs: LogSettings | None = None, stores: Collection[Store] = ()) -> SparkSettings:
        """Return how it is started."""
        settings = SparkSettings(driver_memory=self.driver_memory, conf=self.conf, logs=logs, stores=stores)
        return replace(settings, master=self.master) if self.master else settings


class WarehouseResource(ConfigurableResource["EpochRunner"]):
    """The folder that holds sources, views, state and the catalog."""

    path: str = Field(description="a folder, or the address of an object store")
    spark: SparkResource = Field(default_factory=SparkResource)
    functions: str = Field(
        default="", description="callable that registers what views call besides Spark's functions: package.module:callable"
    )
    storage: dict[str, str] = Field(
        default_factory=dict,
        description="access to an object store, by the names of its variables (AWS_ACCESS_KEY_ID, …); values by EnvVar",
    )
    wait_seconds: float = Field(
        default=-1,
        description="seconds that a run waits for runs with the same views; below 0: RELSTATE_LOCK_WAIT_SECONDS, else 600 s",
    )
    server: str = Field(
        default="auto",
        description="whether the warehouse's warm server does the work: auto (if there is one), never, start (one is started "
        "where none is there), or its address",
    )

    def runner(
        self,
        project: Project,
        tell: Callable[[str], None] = lambda _said: None,
        *,
        views: Collection[str] = (),
        full_refresh: Collection[str] = (),
    ) -> EpochRunner | ServerRunner:
        """Return the runner of epochs, with Spark or at the server, project registered.

        Parameters
        ----------
        tell
            Is called with what takes its time: Spark, planning, other runs that are waited for, and each view that begins.
        views, full_refresh
            What a run is to bring up to date, and to rebuild: of little work, Spark is started so that it soon ends.
        """
        here = partial(self._here, project, tell, views, full_refresh)
        server = self._server()
        return here() if server is None else self._at_server(server, project, tell, here)

    def _here(
        self, project: Project, tell: Callable[[str], None], views: Collection[str], full_refresh: Collection[str]
    ) -> EpochRunner:
        """Return a runner of this process."""
        from relstate_dagster.jobs.api import EpochRunner, Patience, is_brief_run, sync_project  # noqa: PLC0415 - imports PySpark

        warehouse = self.opened()
        is_brief = is_brief_run(warehouse, project, views, full_refresh)
        started = time.perf_counter()
        session = self._session(is_brief=is_brief)
        tell(f"Spark {session.version} is there after {time.perf_counter() - started:.1f} s")
        started = time.perf_counter()
        patience = Patience(self._wait(), tell)
        sync_project(session, warehouse, project, patience, full_refresh=full_refresh)
        tell(f"{len(project.views)} views are planned after {time.perf_counter() - started:.1f} s")
        return EpochRunner(session, warehouse, patience=patience, on_start=tell)

    def _server(self) -> ServerAt | None:
        from relstate_dagster.server.client import server_for  # noqa: PLC0415 - for runs only

        use_options(self.storage)
        return server_for(self.server or "auto", self._server_settings())

    def _at_server(
        self, server: ServerAt, project: Project, tell: Callable[[str], None], here: Callable[[], EpochRunner]
    ) -> ServerRunner:
        """Runner at a server, with this process for the rest."""
        from relstate_dagster.server.runner import ServerRunner  # noqa: PLC0415 - for runs only

        tell(f"the server of the warehouse (process {server.registered.pid}) does the work")
        agreed = self._server_settings().agreed()
        return ServerRunner(server, agreed, project, here, tell, tell, self._wait())

    def _server_settings(self) -> ServerSettings:
        from relstate_dagster.server.settings import ServerSettings  # noqa: PLC0415 - for runs only

        spark = self.spark.settings(self._logs(), stores_for(self.path))
        return ServerSettings.of(Address.parse(self.path).spark, spark, self.functions or None, storage=dict(self.storage))

    def _wait(self) -> float | None:
        return self.wait_seconds if self.wait_seconds >= 0 else None

    def idle_reports(
        self,
        project: Project,
        names: Collection[str],
        *,
        full_refresh: Collection[str] = (),
        until_version: Mapping[str, int] = MappingProxyType({}),
    ) -> list[ViewReport] | None:
        """Reports of a run that finds nothing to do, without Spark; else None.

        Raises
        ------
        RelstateError
            A view cannot be rebuilt, or a source not be read up to a version, as the run is asked to.
        """
        from relstate_dagster.jobs.api import idle_reports  # noqa: PLC0415 - imports PySpark

        return idle_reports(self.opened(), project, names, full_refresh=full_refresh, until_version=until_version)

    def opened(self) -> Warehouse:
        """Return the warehouse, with access to the store that it lies in."""
        from relstate_dagster.jobs.api import Warehouse  # noqa: PLC0415 - imports PySpark

        use_options(self.storage)
        return Warehouse(self.path, self.functions or None)

    @overload
    def read(self, view: str, as_: Literal["spark"] = ..., *, epoch: int | None = ...) -> DataFrame: ...
    @overload
    def read(self, view: str, as_: Literal["arrow"], *, epoch: int | None = ...) -> pa.Table: ...
    @overload
    def read(self, view: str, as_: Literal["pandas"], *, epoch: int | None = ...) -> pd.DataFrame: ...
    def read(self, view: str, as_: RowsAs = "spark", *, epoch: int | None = None) -> DataFrame | pa.Table | pd.DataFrame:
        """Return the rows of a view as of an epoch, without hidden columns.

        Views that belong together are read at one epoch: :meth:`epoch_for` gives that of a run.

        Parameters
        ----------
        view
            Its name in the warehouse.
        as_
            ``spark`` starts Spark; ``arrow`` and ``pandas`` hold all rows in memory, and do without it where columns have
            names that Parquet takes.
        epoch
            The newest without one.

        Raises
        ------
        DeclarationError
            There is no such view.
        EpochError
            It has not been built by then, or the epoch is no longer remembered.
        """
        from relstate_dagster.jobs.api import arrow_rows, spark_rows  # noqa: PLC0415 - imports PySpark

        warehouse = self.opened()
        rows = None if as_ == "spark" else arrow_rows(warehouse, view, epoch)
        if rows is None:
            frame = spark_rows(self._session(), warehouse, view, epoch)
            if as_ == "spark":
                return frame
            rows = frame.toArrow()
        return rows.to_pandas() if as_ == "pandas" else rows

    def epoch_for(self, run_id: str) -> int | None:
        """The epoch that a run brought views to; None if it brought none."""
        from relstate_dagster.jobs.api import epoch_of_run  # noqa: PLC0415 - imports PySpark

        return epoch_of_run(self.opened().read(), run_id)

    def newest_epoch(self) -> int | None:
        """Return the newest epoch of the warehouse; None before the first."""
        from relstate_dagster.jobs.api import newest_epoch  # noqa: PLC0415 - imports PySpark

        return newest_epoch(self.opened().read())

    def _session(self, *, is_brief: bool = False) -> SparkSession:
        return create_session(replace(self.spark.settings(self._logs(), stores_for(self.path)), is_brief=is_brief))

    def _logs(self) -> LogSettings:
        """Spark's log goes to a file: of what fails, Dagster's event log has the reason."""
        return LogSettings("off", log_file(self.path))

    def view_path(self, name: str) -> str:
        """Return where a view is published."""
        return f"{Address.parse(self.path).spark}/views/{name}"
