"""One changed row in small and large groups: max and DISTINCT beside sum."""

from __future__ import annotations

import time
from typing import Any, Final

from benchmarks.measure import quantile
from benchmarks.scenarios.common import Run
from relstate_dagster.jobs.api import EpochRunner, Warehouse
from relstate_dagster.jobs.script import ScriptSession

_GROUPS: Final = 2

#: Each over the same rows.
_VIEWS: Final = {
    "sum": "SELECT g, sum(v) AS r FROM t GROUP BY g",
    "max": "SELECT g, max(v) AS r FROM t GROUP BY g",
    "max_by": "SELECT g, max_by(k, v) AS r FROM t GROUP BY g",
    "distinct": "SELECT g, count(DISTINCT v) AS r FROM t GROUP BY g",
}

#: The change of an epoch, by the epoch's number: insert a row far below the maximum, delete such a row, delete the maximum.
_CHANGES: Final = {
    "insert": "INSERT INTO delta.`{path}` VALUES ({new}, 1, {new} % {values})",
    "delete": "DELETE FROM delta.`{path}` WHERE k = {number} + 100",
    "delete the greatest": "DELETE FROM delta.`{path}` WHERE k = 2 * ({values} - 1 - {number}) + 1",
}


def run(run_: Run, values: tuple[int, ...] = (20_000, 3_000_000)) -> None:
    """Measure it for each number of values in a group, in one process."""
    for count in values:
        named = {"scenario": "extremes", "sf": 0, "query": f"{count} values a group", "stream": "one row", "size": "1"}
        run_.record(named, lambda count=count: measure(run_, count), line)  # type: ignore[misc]


def line(record: dict[str, Any]) -> str:
    """One line: how many times as long as sum each view takes."""
    told = []
    for change, seconds in record["taken"].items():
        ratios = ", ".join(f"{view} {measured / seconds['sum']:.2f}" for view, measured in seconds.items() if view != "sum")
        told.append(f"{change}: sum {seconds['sum']:.2f} s, times {ratios}")
    return "; ".join(told)


def measure(run_: Run, values: int) -> dict[str, Any]:
    """Every view after every change, each in its own run.

    The first view to run is another one each time.
    """
    root = run_.work(0.01) / "warehouse"
    session = ScriptSession(run_.spark.newSession(), Warehouse(root))
    _run(session, "CREATE TABLE t (k BIGINT, g INT, v BIGINT, PRIMARY KEY (k))")
    _run(session, f"INSERT INTO t SELECT id, CAST(id % {_GROUPS} AS INT), id DIV {_GROUPS} FROM range({values * _GROUPS})")
    for name, query in _VIEWS.items():
        _run(session, f"CREATE MATERIALIZED VIEW v_{name} AS {query}")
    path, names = Warehouse(root).source_path("t"), list(_VIEWS)
    seconds: dict[str, dict[str, list[float]]] = {change: {name: [] for name in names} for change in _CHANGES}
    for number in range(run_.warm_up + run_.epochs):
        for nth, (change, statement) in enumerate(_CHANGES.items()):
            new = values * _GROUPS + number
            run_.spark.sql(statement.format(path=path, number=number, values=values, new=new))
            first = (number + nth) % len(names)
            for name in [*names[first:], *names[:first]]:
                seconds[change][name].append(_timed(run_, root, name))
    runner = EpochRunner(run_.spark, Warehouse(root))
    if not all(report.equal for report in runner.verify([f"v_{name}" for name in names])):
        raise RuntimeError("a view differs from its query run in full")
    found = {
        change: {name: quantile(measured[run_.warm_up :], 0.5) for name, measured in views.items()}
        for change, views in seconds.items()
    }
    slowest = {
        change: {name: max(measured[run_.warm_up :]) for name, measured in views.items()} for change, views in seconds.items()
    }
    return {"values": values, "taken": found, "slowest": slowest}


def _timed(run_: Run, root: Any, name: str) -> float:
    started = time.perf_counter()
    for report in EpochRunner(run_.spark, Warehouse(root)).run([f"v_{name}"]):
        if report.problem:
            raise RuntimeError(report.problem)
    return time.perf_counter() - started


def _run(session: ScriptSession, text: str) -> None:
    for result in session.run(text):
        if isinstance(result, tuple):
            raise result[1]
