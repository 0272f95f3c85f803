"""Running SQL scripts against a warehouse inside the suite's session."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine.instants import Clock, utc_now
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.script import Result, ScriptSession
from relstate_dagster.state_lib.size_settings import SizeSettings, current_sizes

#: The statements that change sources have some rows each. What epochs and VERIFY do, they do in sessions of their own.
FOR_FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # VACUUM lists a folder of three files by as many tasks as this, by default 10,000: half a minute.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}
#: Folders that tests of this process begin with, by what is in them and the sizes that it was made by.
_BEGINNINGS: dict[tuple[str, SizeSettings], Path] = {}


def copied(what: str, folder: Path) -> bool:
    """Fill a folder as an earlier test has left it with :func:`kept`, under that name; whether one has."""
    built = _BEGINNINGS.get((what, current_sizes()))
    if built is not None:
        shutil.copytree(built, folder, dirs_exist_ok=True)
    return built is not None


def kept(what: str, folder: Path) -> None:
    """Keep a folder as it is now for later tests."""
    if not _BEGINNINGS:
        atexit.register(lambda: [shutil.rmtree(one, ignore_errors=True) for one in _BEGINNINGS.values()])
    copy = Path(tempfile.mkdtemp(prefix="relstate-beginning-"))
    _BEGINNINGS[what, current_sizes()] = shutil.copytree(folder, copy, dirs_exist_ok=True)


class Script:
    """A warehouse and one script session over it."""

    def __init__(self, spark: SparkSession, folder: Path | str, clock: Clock = utc_now, functions: str | None = None) -> None:
        self._opened = spark, folder, clock, functions
        self._open()

    def _open(self) -> None:
        spark, folder, clock, functions = self._opened
        self.warehouse = Warehouse(folder, functions)
        # A session of its own: tables and views of one test are not those of the next.
        changing = spark.newSession()
        for key, value in FOR_FEW_ROWS.items():
            changing.conf.set(key, value)
        self.session = ScriptSession(changing, self.warehouse, clock=clock)

    def begin(self, statements: str) -> None:
        """Run statements in a new warehouse; where an earlier test has begun with the same ones, copy what it got from them.

        For statements that leave nothing outside of the warehouse, neither in files nor in the session.
        """
        root = Path(self.warehouse.root)
        assert not root.exists(), f"{root} has begun already"
        assert self._opened[2:] == (utc_now, None), "another clock, or functions, make another warehouse"
        if copied(statements, root):
            self._open()
        else:
            self.run(statements)
            kept(statements, root)

    def run(self, text: str) -> list[Result]:
        """Run statements that must all work."""
        results = []
        for result in self.session.run(text):
            if isinstance(result, tuple):
                raise result[1]
            results.append(result)
        return results

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of one query, in a fixed order."""
        (result,) = self.run(query)
        return sorted(result.rows, key=str)

    def error(self, text: str) -> Exception:
        """The error that the last of some statements gives; the others must work."""
        results = list(self.session.run(text))
        assert all(not isinstance(r, tuple) for r in results[:-1]), results
        last = results[-1]
        assert isinstance(last, tuple), f"no error, but {last}"
        return last[1]

    def verify(self) -> None:
        """Every view equals its query run in full."""
        self.run("VERIFY")


def run_ahead(script: Script, runner: EpochRunner, view: str, epochs: int) -> None:
    """Epochs of one view alone over updates of ``t (k, v)``, its state compacted after each: views over it stay behind."""
    for n in range(epochs):
        script.run(f"UPDATE t SET v = v + 1 WHERE k % {epochs} = {n}")
        list(runner.run([view]))
        list(runner.compact([view]))
