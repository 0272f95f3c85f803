"""An epoch's time by the number of earlier epochs, with compaction if possible."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import Bench, live_bytes
from benchmarks.measure import quantile
from benchmarks.queries import query_text, tables_of
from benchmarks.scenarios.common import Run


def run(run_: Run, sf: float, query: str, epochs: int, compact_every: int, size: str) -> None:
    """Measure it once."""
    named = {"scenario": "aging", "sf": sf, "query": query, "stream": "appended", "size": size}
    run_.record(named, lambda: measure(run_, sf, query, epochs, compact_every, size), line)


def line(record: dict[str, Any]) -> str:
    """One line."""
    return ", ".join(f"after {n} epochs {s:.2f} s" for n, s in record["after"].items()) + f"; compacted: {record['compacts']}"


def measure(run_: Run, sf: float, query: str, epochs: int, compact_every: int, size: str) -> dict[str, Any]:
    """Run many epochs; compaction runs between them and is timed apart."""
    text = query_text(query, sf)
    series = run_.series(sf, "appended", size, run_.warm_up + epochs)
    work = run_.work(sf)
    bench = Bench(run_.spark, run_.probe, work / "warehouse", series.replay(work / "sources", tables_of(text)))
    bench.add_view(query, text)
    bench.epoch()
    compact = getattr(bench.runner, "compact", None)
    walls: list[float] = []
    compactions: list[float] = []
    for number in range(series.epochs):
        bench.replay.advance()
        _, sample, _ = bench.epoch()
        if number >= run_.warm_up:
            walls.append(round(sample.wall, 4))
        if compact is not None and number % compact_every == compact_every - 1:
            _, cost = run_.probe.measure(lambda: list(compact()))
            compactions.append(round(cost.wall, 4))
        if number % 100 == 99:
            run_.console.print(f"{number + 1} of {series.epochs} epochs, the last in {sample.wall:.2f} s", style="dim")
    bench.verify()
    run_.drop_series(series)
    entry = bench.view(query)
    # The median of up to eleven epochs around each point: one epoch alone tells little.
    points = [n for n in (1, 10, 100, 1000, 10_000) if n <= len(walls)]
    after = {str(n): quantile(walls[max(0, n - 6) : n + 5] if n > 1 else walls[:5], 0.5) for n in points}
    return {
        "after": after,
        "walls": walls,
        "compacts": compact is not None,
        "compactions": compactions,
        "state_bytes": live_bytes(bench.warehouse.state_path(entry)),
        "verified": True,
    }
