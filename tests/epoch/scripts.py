"""Running SQL scripts against a warehouse inside the suite's session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from relstate_dagster.jobs.epoch.runner import EpochRunner
from relstate_dagster.jobs.instants import Clock, utc_now
from relstate_dagster.jobs.script import Result, ScriptSession
from relstate_dagster.jobs.warehouse import Warehouse

#: The statements that change sources have some rows each. What epochs and VERIFY do, they do in sessions of their own.
_FOR_FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class Script:
    """A warehouse and one script session over it."""

    def __init__(self, spark: SparkSession, folder: Path | str, clock: Clock = utc_now, functions: str | None = None) -> None:
        self.warehouse = Warehouse(folder, functions)
        # A session of its own: tables and views of one test are not those of the next.
        changing = spark.newSession()
        for key, value in _FOR_FEW_ROWS.items():
            changing.conf.set(key, value)
        self.session = ScriptSession(changing, self.warehouse, clock=clock)

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
