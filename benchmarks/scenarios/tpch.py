"""The main scenario: incremental TPC-H views against full queries, over a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.harness import Bench, Opponent, input_bytes, live_bytes, plan_nodes
from benchmarks.measure import Sample, quantile
from benchmarks.queries import query_text, tables_of
from benchmarks.scenarios.common import Run
from benchmarks.series import Series
from relstate_dagster.jobs.api import ViewReport


def run(
    run_: Run,
    sfs: Sequence[float],
    queries: Sequence[str],
    streams: Sequence[str],
    sizes: Sequence[str],
    scenario: str = "tpch",
) -> None:
    """Measure every combination that is not measured yet."""
    for sf in sfs:
        for stream in streams:
            for size in ["0"] if stream == "none" else sizes:
                todo = [q for q in queries if not run_.results.has(scenario=scenario, sf=sf, query=q, stream=stream, size=size)]
                if not todo:
                    continue
                series = run_.series(sf, stream, size)
                for query in todo:
                    named = {"scenario": scenario, "sf": sf, "query": query, "stream": stream, "size": size}
                    run_.record(named, lambda q=query, s=sf, of=series: measure(run_, s, q, of), line)  # type: ignore[misc]
                run_.drop_series(series)


def line(record: dict[str, Any]) -> str:
    """One measurement on one line."""
    i, f = record["incremental"], record["full"]
    shown = f"incremental {i['wall_p50']:.2f} s (p95 {i['wall_p95']:.2f}), {i['jobs']:.0f} jobs"
    return f"{shown}; full {f['wall_p50']:.2f} s, {f['jobs']:.0f} jobs; full/incremental {record['ratio']:.2f}"


def measure(run_: Run, sf: float, query: str, series: Series) -> dict[str, Any]:
    """One query over one series: backfill, epochs in turn with full runs, verification."""
    text = query_text(query, sf)
    work = run_.work(sf)
    replay = series.replay(work / "sources", tables_of(text))
    nothing = all(not n for n in series.rows)
    if not nothing and not any(rows.get(t) for rows in series.rows for t in replay.tables):
        return {"status": "unaffected"}
    bench = Bench(run_.spark, run_.probe, work / "warehouse", replay, run_.indexes)
    view = bench.add_view(query, text)
    opponent = Opponent(run_.spark, run_.probe, work, replay, view)
    opponent.run()
    full_before = opponent.run()
    reports, backfill, backfill_written = bench.epoch()
    epochs: list[dict[str, Any]] = []
    for number in range(series.epochs):
        rows = replay.advance()
        reports, sample, written = bench.epoch()
        full = opponent.run() if (number - run_.warm_up) % run_.full_every == 0 else None
        if number >= run_.warm_up or series.epochs <= run_.warm_up:
            epochs.append(_epoch(rows, reports[0], sample, written, full))
    bench.verify()
    entry = bench.view(query)
    return {
        "strategy": entry.strategy,
        "reason": entry.reason,
        "plan_nodes": plan_nodes(entry),
        "rows_per_epoch": sum(sum(e["rows"].values()) for e in epochs) / len(epochs),
        "backfill": {**backfill.to_dict(), "written": backfill_written, "full_wall": round(full_before.wall, 4)},
        "state_bytes": live_bytes(bench.warehouse.state_path(entry)),
        "view_bytes": live_bytes(bench.warehouse.target(query).path),
        "input_bytes": input_bytes(replay, text),
        **({"indexes": run_.indexes, "index_bytes": bench.index_bytes()} if run_.indexes else {}),
        "epochs": epochs,
        **summary(epochs),
        "verified": True,
    }


def _epoch(
    rows: dict[str, int], report: ViewReport, sample: Sample, written: dict[str, Any], full: Sample | None
) -> dict[str, Any]:
    return {
        "rows": rows,
        "strategy": report.strategy,
        "view_rows": report.rows_inserted + report.rows_deleted,
        "state_rows": report.state_rows_written,
        "stages": {k: round(v, 4) for k, v in report.seconds.items()},
        "written": written,
        "incremental": sample.to_dict(),
        "full": None if full is None else full.to_dict(),
    }


def summary(epochs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians and 95th percentiles of both ways, and the ratio of the medians."""
    ways = {way: _way([e[way] for e in epochs if e[way] is not None]) for way in ("incremental", "full")}
    stages = {k: quantile([e["stages"].get(k, 0.0) for e in epochs], 0.5) for k in ("plan", "compute_and_commit", "publish")}
    written = {
        kind: {what: sum(e["written"][kind][what] for e in epochs) / len(epochs) for what in ("commits", "files", "bytes")}
        for kind in ("state", "view", "catalog")
    }
    return {
        **ways,
        "stages": stages,
        "written": written,
        "ratio": ways["full"]["wall_p50"] / ways["incremental"]["wall_p50"],
        "cpu_ratio": _ratio(ways["full"]["cpu_p50"], ways["incremental"]["cpu_p50"]),
    }


def _way(samples: list[dict[str, Any]]) -> dict[str, Any]:
    def values(name: str) -> list[float]:
        return [s[name] for s in samples if s[name] is not None]

    def median(name: str) -> float | None:
        return quantile(values(name), 0.5) if values(name) else None

    cpu = [s["cpu_jvm"] + s["cpu_python"] for s in samples if s["cpu_jvm"] is not None and s["cpu_python"] is not None]
    return {
        "wall_p50": median("wall"),
        "wall_p95": quantile(values("wall"), 0.95),
        "cpu_p50": quantile(cpu, 0.5) if cpu else None,
        "cpu_p95": quantile(cpu, 0.95) if cpu else None,
        "peak_rss": max(values("peak_rss"), default=None),
        **{name: median(name) for name in ("cpu_jvm", "jobs", "stages", "tasks", "spark_input_bytes", "read_bytes")},
    }


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
