"""A click in Dagster: ten demo views in a `dagster dev`, by Dagster's clock.

Little changes between two clicks, or nothing; the warehouse's server does the work, or the run alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.dagster_dev import Runs, dagster_dev
from benchmarks.harness import verify
from benchmarks.measure import quantile
from benchmarks.scenarios.common import Run
from relstate_dagster.jobs.api import EpochRunner, Warehouse, sync_project
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.jobs.demo import LOADED_THROUGH, FlightPlayer
from relstate_dagster.settings import DEMO_PROJECT

#: Beside the data of scale factors, as if it were one.
_SF: Final = 0.0
_FLIGHTS: Final = 40


def run(run_: Run, warm: int) -> None:
    """Measure it once."""
    named = {"scenario": "click", "sf": _SF, "query": "demo", "stream": "updates", "size": str(_FLIGHTS)}
    run_.record(named, lambda: measure(run_, warm), line)


def line(record: dict[str, Any]) -> str:
    """One line."""
    return ", ".join(f"{way} {record[way]['p50']:.2f} s (p95 {record[way]['p95']:.2f})" for way in ("idle", "warm", "cold"))


def measure(run_: Run, warm: int) -> dict[str, Any]:
    """Build the views, then run epochs of each kind by server and `dagster dev`.

    Parameters
    ----------
    warm : epochs that the server has done before.
    """
    project, folder = load_project(DEMO_PROJECT), run_.work(_SF)
    folder.mkdir(parents=True)
    warehouse = Warehouse(folder / "warehouse")
    player = FlightPlayer(run_.spark, f"{warehouse.root}/sources", project.sources)
    player.load(LOADED_THROUGH)
    sync_project(run_.spark, warehouse, project)
    runner = EpochRunner(run_.spark, warehouse)
    list(runner.run())
    change = _Changes(run_, warehouse)
    relstate = _Command(folder, str(warehouse.root))
    relstate("server", "start")
    try:
        for _ in range(warm):
            change()
            relstate("run")
        with dagster_dev(folder) as (address, _):
            runs = Runs(address)
            _seconds(runs)  # makes the process of the next one ready
            idle = [_seconds(runs) for _ in range(run_.epochs)]
            served = [_seconds(runs, change) for _ in range(run_.epochs)]
            relstate("server", "stop")
            alone = [_seconds(runs, change) for _ in range(run_.epochs)]
    finally:
        relstate("server", "stop", check=False)
    verify(runner)
    return {
        "views": len(project.views),
        "epochs_before": warm,
        **{
            way: {"p50": quantile(walls, 0.5), "p95": quantile(walls, 0.95), "least": min(walls), "most": max(walls)}
            for way, walls in (("idle", idle), ("warm", served), ("cold", alone))
        },
    }


class _Changes:
    """Makes forty flights of one day a minute later, of another day each time."""

    def __init__(self, run_: Run, warehouse: Warehouse) -> None:
        self._spark, self._table, self._count = run_.spark, f"delta.`{warehouse.root}/sources/flights`", 0

    def __call__(self) -> None:
        day = f"month = 1 AND day = {self._count % 28 + 1}"
        some = self._spark.sql(
            f"SELECT carrier, flight FROM {self._table} WHERE {day} ORDER BY carrier, flight LIMIT {_FLIGHTS}"
        )
        keys = ", ".join(f"('{row.carrier}', {row.flight})" for row in some.collect())
        late = "dep_delay = coalesce(dep_delay, 0) + 1, arr_delay = coalesce(arr_delay, 0) + 2"
        self._spark.sql(f"UPDATE {self._table} SET {late} WHERE {day} AND (carrier, flight) IN ({keys})")
        self._count += 1


class _Command:
    """The command line, over one warehouse."""

    def __init__(self, folder: Path, warehouse: str) -> None:
        self._folder, self._environment = folder, {**os.environ, "RELSTATE_WAREHOUSE": warehouse}

    def __call__(self, *arguments: str, check: bool = True) -> None:
        command = [sys.executable, "-c", "from relstate_dagster.cli import console_script; console_script()", *arguments]
        subprocess.run(command, check=check, cwd=self._folder, env=self._environment, capture_output=True)


def _seconds(runs: Runs, change: _Changes | None = None) -> float:
    """From the click to the end of the run."""
    if change is not None:
        change()
    time.sleep(3)  # the process of the next run is ready by then
    started = time.time()
    run_id = runs.launch()
    runs.until_it_is(run_id, "SUCCESS")
    return runs.ended(run_id) - started
