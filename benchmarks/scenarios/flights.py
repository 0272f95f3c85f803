"""The flights demo: its views in one run a day, against full queries.

A day has about 900 new flights, the corrections and cancellations of the day before, a plane registered again and the weather
of the day (:mod:`.jobs.demo.player`).
"""

from __future__ import annotations

from typing import Any

from benchmarks.harness import verify
from benchmarks.measure import quantile
from benchmarks.scenarios.common import Run
from relstate_dagster.jobs.api import EpochRunner, Warehouse, sync_project
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.jobs.demo import LOADED_THROUGH, FlightPlayer
from relstate_dagster.settings import DEMO_PROJECT

#: Beside the data of scale factors, as if it were one.
_SF = 0.0


def run(run_: Run) -> None:
    """Measure it once."""
    named = {"scenario": "flights", "sf": _SF, "query": "demo", "stream": "days", "size": "1 day"}
    run_.record(named, lambda: measure(run_), line)


def line(record: dict[str, Any]) -> str:
    """One line."""
    return (
        f"{record['views']} views {record['wall_p50']:.2f} s (p95 {record['wall_p95']:.2f}), {record['jobs']:.0f} jobs; "
        f"in full {record['full_p50']:.2f} s: {record['ratio']:.2f} times"
    )


def measure(run_: Run) -> dict[str, Any]:
    """Load two months, then play days, each with an epoch of all views.

    Of some views, the queries run in full as well.
    """
    project = load_project(DEMO_PROJECT)
    root = run_.work(_SF) / "warehouse"
    player = FlightPlayer(run_.spark, f"{root}/sources", project.sources)
    player.load(LOADED_THROUGH)
    warehouse = Warehouse(root)
    sync_project(run_.spark, warehouse, project)
    runner = EpochRunner(run_.spark, warehouse)
    names = [view.name for view in project.views]
    _, backfill = run_.probe.measure(lambda: list(runner.run()))
    samples, full = [], []
    for day in range(run_.warm_up + run_.epochs):
        player.play_day()
        _, sample = run_.probe.measure(lambda: list(runner.run()))
        if day >= run_.warm_up:
            samples.append(sample)
            if (day - run_.warm_up) % run_.full_every == 0:
                full.append(sum(runner.full_recompute_seconds(names).values()))
    verify(runner)
    walls = [s.wall for s in samples]
    return {
        "views": len(names),
        "wall_p50": quantile(walls, 0.5),
        "wall_p95": quantile(walls, 0.95),
        "jobs": quantile([s.jobs for s in samples], 0.5),
        "full_p50": quantile(full, 0.5),
        "ratio": quantile(full, 0.5) / quantile(walls, 0.5),
        "backfill": backfill.to_dict(),
        "epochs": [s.to_dict() for s in samples],
    }
