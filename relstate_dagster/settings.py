"""Which project and which warehouse this code location serves: environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from relstate_dagster import assets
from relstate_dagster.jobs.engine.jars import has_jars_of
from relstate_dagster.state_lib.lake.address import Address
from relstate_dagster.state_lib.lake.storage import STORES, Store, options_of

DEMO_PROJECT = Path(assets.__file__).parent / "demo"
DEMO_WAREHOUSE = "demo-warehouse"


@dataclass(frozen=True)
class Location:
    """A project's folder, its warehouse (folder or object store), and its functions.

    ``functions`` is the callable that registers what views call besides Spark's own functions, ``package.module:callable``.
    ``server`` says whether the warehouse's server does the work: ``auto``, ``never``, ``start``, or its address.
    ``is_named`` is false if no project is named, which then is the demo.
    """

    project: Path
    warehouse: str
    functions: str | None = None
    server: str = "auto"
    is_named: bool = True

    @property
    def log_file(self) -> Path | None:
        """Path of Spark's log in the warehouse, if that is local."""
        return log_file(self.warehouse)

    @property
    def stores(self) -> tuple[Store, ...]:
        """Object stores that Spark has to reach, for the warehouse or for sources."""
        return stores_for(self.warehouse)

    @classmethod
    def from_environment(cls) -> Location:
        """Read ``RELSTATE_PROJECT``, ``_WAREHOUSE``, ``_FUNCTIONS`` and ``_SERVER``; by default the demo, here."""
        project = os.environ.get("RELSTATE_PROJECT")
        warehouse = os.environ.get("RELSTATE_WAREHOUSE") or DEMO_WAREHOUSE
        warehouse = Address.parse(warehouse).spark
        functions = os.environ.get("RELSTATE_FUNCTIONS") or None
        server = os.environ.get("RELSTATE_SERVER") or "auto"
        return cls(Path(project).absolute() if project else DEMO_PROJECT, warehouse, functions, server, bool(project))


def stores_for(warehouse: str) -> tuple[Store, ...]:
    """Object stores that Spark needs: the warehouse's, and those with keys and jars."""
    own = Address.parse(warehouse).store
    return tuple(store for store in STORES if store == own or (options_of(store) and has_jars_of(store)))


def log_file(warehouse: str) -> Path | None:
    """File of Spark's log in the warehouse; ``None`` in an object store."""
    address = Address.parse(warehouse)
    return Path(address.spark) / "_relstate" / "logs" / "spark.log" if address.is_local else None
