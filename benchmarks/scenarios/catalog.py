"""One view refreshed in small and large catalogs.

What a run reads and writes must follow its own views.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.measure import quantile
from benchmarks.scenarios.common import Run
from relstate_dagster.jobs.api import CatalogState, EpochRunner, Warehouse
from relstate_dagster.jobs.run.freshness import views_behind
from relstate_dagster.jobs.script import ScriptSession

_SETUP = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
INSERT INTO t SELECT id, id % 10, id FROM range(1000);
CREATE MATERIALIZED VIEW refreshed AS SELECT g, count(*) AS n, sum(v) AS s FROM t GROUP BY g;
"""


def run(run_: Run, views: tuple[int, ...] = (10, 10_000)) -> None:
    """Measure it for each number of views, in one process."""
    for count in views:
        named = {"scenario": "catalog", "sf": 0, "query": f"{count} views", "stream": "none", "size": "1"}
        run_.record(named, lambda count=count: measure(run_, count), line)  # type: ignore[misc]


def line(record: dict[str, Any]) -> str:
    """One line."""
    return ", ".join(f"{name} {seconds:.3f} s" for name, seconds in record["taken"].items())


def measure(run_: Run, views: int) -> dict[str, Any]:
    """Refresh one view of a catalog, read from its files each time.

    As in a fresh process.
    """
    root = run_.work(0.01) / "warehouse"
    session = ScriptSession(run_.spark.newSession(), Warehouse(root))
    _run(session, _SETUP)
    Warehouse(root).catalog.update(lambda state: _with_copies(state, views - 1))
    seconds: dict[str, list[float]] = {"read": [], "run": [], "run without work": [], "behind": []}
    for number in range(run_.warm_up + run_.epochs):
        # Not by the session: it makes every view known to Spark whenever the catalog has changed.
        run_.spark.sql(f"INSERT INTO delta.`{Warehouse(root).source_path('t')}` VALUES ({2000 + number}, {number % 10}, 1)")
        timed = {
            "read": _timed(lambda: Warehouse(root).read()),
            "behind": _timed(lambda: views_behind(Warehouse(root), Warehouse(root).read().views)),
            "run": _timed(lambda: list(EpochRunner(run_.spark, Warehouse(root)).run(["refreshed"]))),
            "run without work": _timed(lambda: list(EpochRunner(run_.spark, Warehouse(root)).run(["refreshed"]))),
        }
        for name, measured in timed.items():
            seconds[name].append(measured)
    if not all(report.equal for report in EpochRunner(run_.spark, Warehouse(root)).verify(["refreshed"])):
        raise RuntimeError("the view differs from its query run in full")
    files = len(list(Path(root, "_relstate", "catalog").rglob("*.parquet")))
    found = {name: quantile(measured[run_.warm_up :], 0.5) for name, measured in seconds.items()}
    return {"views": views, "taken": found, "catalog_files": files}


def _with_copies(state: CatalogState, count: int) -> CatalogState:
    """The state with ``count`` copies of its one view, plan and epochs included."""
    view = state.views["refreshed"]
    names = [f"view_{number}" for number in range(count)]
    epochs = {
        number: replace(
            epoch,
            views=(*epoch.views, *names),
            versions={**epoch.versions, **dict.fromkeys(names, epoch.versions["refreshed"])},
        )
        for number, epoch in state.epochs.items()
    }
    return replace(state, views={**state.views, **{name: replace(view, name=name) for name in names}}, epochs=epochs)


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _run(session: ScriptSession, text: str) -> None:
    for result in session.run(text):
        if isinstance(result, tuple):
            raise result[1]
