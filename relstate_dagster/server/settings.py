"""Settings that a server and its clients must share, or epochs could differ."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from relstate_dagster.jobs.engine import SparkSettings
from relstate_dagster.jobs.engine.defaults_file import defaults_of_spark
from relstate_dagster.jobs.engine.logs import LogSettings
from relstate_dagster.state_lib.lake.storage import STORES, Store, options_of


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a warehouse's server.

    Parameters
    ----------
    warehouse : its folder or address.
    functions : the callable that registers the user's functions.
    stores : the object stores that Spark reaches.
    storage : access to them, by the names of their variables.
    idle_minutes : after so long without a request it ends.
    most_memory_gb : with more than this in use (Python and the JVM) after a request, it ends.
    log_level, log_file : of Spark's log.
    warm_up : whether it runs epochs of its own until the first request.
    """

    warehouse: str
    functions: str | None = None
    master: str = ""
    driver_memory: str = ""
    conf: dict[str, str] = field(default_factory=dict)
    stores: list[Store] = field(default_factory=list)
    storage: dict[str, str] = field(default_factory=dict)
    idle_minutes: float = 30.0
    most_memory_gb: float = 6.0
    log_level: str = "off"
    log_file: str | None = None
    warm_up: bool = True

    @classmethod
    def of(cls, warehouse: str, spark: SparkSettings, functions: str | None = None, **others: Any) -> ServerSettings:
        """Server settings that correspond to a process with these Spark settings."""
        logs = spark.logs or LogSettings()
        return cls(
            warehouse,
            functions,
            spark.master,
            spark.driver_memory,
            dict(spark.conf),
            list(spark.stores),
            log_level=logs.console,
            log_file=None if logs.file is None else str(logs.file),
            **others,
        )

    def spark(self) -> SparkSettings:
        """Return how the server starts Spark."""
        logs = LogSettings(self.log_level, None if self.log_file is None else Path(self.log_file))
        return SparkSettings(
            master=self.master,
            driver_memory=self.driver_memory,
            conf=self.conf,
            logs=logs,
            stores=self.stores,
            app_name="relstate-server",
        )

    def agreed(self) -> dict[str, str]:
        """Settings that both ends must share, by name.

        The memory of the JVM is the server's own.
        """
        return {
            "version of relstate-dagster": f"{importlib.metadata.version('relstate-dagster')} ({_code_stamp()})",
            "Python": sys.executable,
            "Spark master": self.master,
            "Spark settings": json.dumps(self.conf, sort_keys=True),
            "spark-defaults.conf": _of_options(defaults_of_spark()),
            "log level": self.log_level,
            "functions": _functions(self.functions),
            "RELSTATE_SIZING": os.environ.get("RELSTATE_SIZING", ""),
            **{f"access to {store}": _access(store) for store in STORES},
        }


def difference(ours: dict[str, str], theirs: dict[str, str]) -> str | None:
    """The setting in which server (``ours``) and client (``theirs``) differ; else None."""
    for name, value in ours.items():
        other = theirs.get(name, "")
        if value != other:
            return f"{name}: {value or 'none'} there, {other or 'none'} here"
    return None


def _access(store: Store) -> str:
    return _of_options(options_of(store))


def _of_options(options: Mapping[str, str]) -> str:
    """Digest of options, which may be secret; empty without any."""
    return _digest(sorted(options.items())) if options else ""


def _functions(name: str | None) -> str:
    """Name of the callable with its file.

    Two projects may each have a module of that name.
    """
    if not name:
        return ""
    try:
        found = importlib.util.find_spec(name.partition(":")[0])
    except (ImportError, ValueError):
        found = None
    return f"{name} in {found.origin}" if found is not None and found.origin else name


@lru_cache(maxsize=1)
def _code_stamp() -> str:
    """Mark of the code on disk.

    Of an editable installation the version alone says little.
    """
    package = Path(__file__).parent.parent
    files = [Path(folder, name) for folder, _, names in os.walk(package, followlinks=True) for name in names]
    return _digest(max(file.stat().st_mtime_ns for file in files if file.suffix == ".py"))


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]
