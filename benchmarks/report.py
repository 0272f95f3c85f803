"""The report: tables and plots out of the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import plots
from benchmarks.pipeline.section import pipeline_section
from benchmarks.queries import QUERIES
from benchmarks.scenarios.peers import PEERS
from benchmarks.tables import bytes_text as _bytes
from benchmarks.tables import seconds_text as _s
from benchmarks.tables import table

Record = dict[str, Any]


def write_report(records: Sequence[Record], out: Path) -> Path:
    """Write ``benchmarks.md`` and ``benchmarks/*.svg`` into a folder."""
    folder = out / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    parts = [_HEAD, _environment(records)]
    parts += _main(records, folder)
    parts += _flat(records, folder)
    parts += pipeline_section(records)
    parts += _others(records)
    parts += peers_section(records)
    path = out / "benchmarks.md"
    path.write_text("\n\n".join(p.strip() for p in parts if p.strip()) + "\n", encoding="utf-8")
    return path


_HEAD = """
# Benchmarks

Written by `python -m benchmarks report` from the results of `python -m benchmarks run` and its sister commands
(`--help` tells what each measures). Do not edit.

Each TPC-H query is a view over Delta tables with their change data feed on. One warm process maintains the view over a
stream of changes. After each epoch, or some of them, it runs the same query in full on the same Spark and tables and writes
the result as a Delta table. Adaptive execution and code generation are on. **Ratio** is full seconds by incremental seconds:
above 1, maintaining the view is faster than recomputing it. Every view is compared with its query at the end.

The measured time does not include writing the changes to the sources. *Appended* changes are new orders with their lines.
*Scattered* changes are rows that delta-rs updates at random in every table. It rewrites their files in another order of rows.
*Marked* changes are the same updates, written by Spark to tables with deletion vectors, whose files keep their order. Seconds
depend on the machine; ratios, jobs and commits less so.
"""


def _environment(records: Sequence[Record]) -> str:
    lines = []
    for e in _unique(r["environment"] for r in records):
        memory = f"{e['memory_gb']} GB of memory" if e.get("memory_gb") else "unknown memory"
        lines.append(
            f"Measured on {e['cores']} cores ({e['cpu'] or 'unknown processor'}, {e['os']}), {memory}, {e['driver_memory']} of "
            f"it Spark's heap; Java {e['java']}, Spark {e['spark']}, Delta {e['delta_spark']}, delta-rs {e['deltalake']}, "
            f"Python {e['python']}."
        )
    return "\n".join(lines)


def _unique(values: Iterable[Record]) -> list[Record]:
    found: list[Record] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _main(records: Sequence[Record], folder: Path) -> list[str]:
    main = [r for r in records if r["scenario"] == "tpch"]
    if not main:
        return []
    measured = [r for r in main if r["status"] == "ok"]
    parts = ["## Queries", _overview(measured)]
    for stream, size in dict.fromkeys((r["stream"], r["size"]) for r in measured):
        of_stream = [r for r in measured if (r["stream"], r["size"]) == (stream, size)]
        title = "Nothing changes" if stream == "none" else f"{stream.capitalize()}, {_size(size)} an epoch"
        parts.append(f"### {title}")
        name = f"ratio-{stream}-{size.replace('%', 'percent')}.svg"
        plots.ratios(of_stream, folder / name, title)
        parts.append(f"![Ratio of each query: {title}](benchmarks/{name})")
        for sf in sorted({r["sf"] for r in of_stream}):
            rows = sorted((r for r in of_stream if r["sf"] == sf), key=_query_number)
            parts.append(f"SF {sf:g}; geometric mean of the ratios: **{geometric_mean([r['ratio'] for r in rows]):.2f}**.")
            parts.append(_time_table(rows))
            parts.append(_work_table(rows))
            unaffected = [r["query"] for r in main if r["status"] == "unaffected" and _group(r) == (sf, stream, size)]
            if unaffected:
                parts.append(f"Not touched by this stream: {', '.join(sorted(unaffected, key=QUERIES.index))}.")
            refused = [f"{r['query']} ({r['reason']})" for r in rows if r["strategy"] == "full"]
            if refused:
                parts.append(f"Recomputed in full at every epoch: {'; '.join(refused)}.")
    return parts


def _group(r: Record) -> tuple[float, str, str]:
    return r["sf"], r["stream"], r["size"]


def _query_number(r: Record) -> int:
    return QUERIES.index(r["query"])


def _size(size: str) -> str:
    return f"{size} of the rows" if size.endswith("%") else f"{size} rows"


def _overview(measured: Sequence[Record]) -> str:
    groups = sorted({_group(r) for r in measured})
    rows = []
    for group in groups:
        ratios = [r["ratio"] for r in measured if _group(r) == group]
        slower = sum(r < 1 for r in ratios)
        cells = [f"{group[0]:g}", group[1], group[2] if group[1] != "none" else "", str(len(ratios))]
        rows.append([*cells, f"{geometric_mean(ratios):.2f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}", str(slower)])
    head = ["SF", "stream", "size", "queries", "geometric mean of ratios", "least", "greatest", "slower than full"]
    return table(head, rows)


def _time_table(records: Sequence[Record]) -> str:
    head = [
        "query",
        "incremental s (p50)",
        "p95",
        "full s (p50)",
        "p95",
        "ratio",
        "CPU s incremental",
        "CPU s full",
        "CPU ratio",
    ]
    head += ["planning / computing+committing / publishing", "rows changed", "backfill s", "one full s"]
    rows = []
    for r in records:
        i, f, b, stages = r["incremental"], r["full"], r["backfill"], r["stages"]
        total = sum(stages.values()) or 1.0
        shares = " / ".join(f"{stages[k] / total:.0%}" for k in ("plan", "compute_and_commit", "publish"))
        cells = [
            r["query"],
            _s(i["wall_p50"]),
            _s(i["wall_p95"]),
            _s(f["wall_p50"]),
            _s(f["wall_p95"]),
            f"**{r['ratio']:.2f}**",
        ]
        cells += [_s(i["cpu_p50"]), _s(f["cpu_p50"]), _s(r["cpu_ratio"]), shares, f"{r['rows_per_epoch']:.0f}"]
        rows.append([*cells, _s(b["wall"]), _s(b["full_wall"])])
    return table(head, rows)


def _work_table(records: Sequence[Record]) -> str:
    head = ["query", "jobs inc / full", "stages", "tasks", "read inc / full", "commits", "files written", "bytes written"]
    head += ["state / input columns", "peak memory inc / full"]
    rows = []
    for r in records:
        i, f = r["incremental"], r["full"]
        pairs = [f"{i[k]:.0f} / {f[k]:.0f}" for k in ("jobs", "stages", "tasks")]
        written = [sum(r["written"][kind][what] for kind in ("state", "view")) for what in ("commits", "files", "bytes")]
        cells = [r["query"], *pairs, f"{_bytes(i['read_bytes'])} / {_bytes(f['read_bytes'])}"]
        cells += [f"{written[0]:.1f}", f"{written[1]:.1f}", _bytes(written[2])]
        state = r["state_bytes"] / r["input_bytes"] if r["input_bytes"] else 0.0
        cells += [f"{_bytes(r['state_bytes'])} / {_bytes(r['input_bytes'])} ({state:.2f})"]
        rows.append([*cells, f"{_bytes(i['peak_rss'])} / {_bytes(f['peak_rss'])}"])
    note = "Commits, files and bytes are of state and view, for one epoch; the catalog takes two more commits a run."
    return f"{table(head, rows)}\n\n{note}"


def _flat(records: Sequence[Record], folder: Path) -> list[str]:
    flat = _at_several_scales(records)
    parts = ["## Flatness"] if flat else []
    for stream, size in sorted({(r["stream"], r["size"]) for r in flat}):
        of_stream = [r for r in flat if (r["stream"], r["size"]) == (stream, size)]
        name = f"flat-{stream}-{size.replace('%', 'percent')}.svg"
        plots.flatness(of_stream, folder / name)
        parts.append(f"The same {_size(size)} an epoch, {stream}, at several scale factors.")
        parts.append(f"![Seconds of an epoch by scale factor, {stream}](benchmarks/{name})")
        parts.append(_flat_table(of_stream))
        if any(r["scenario"] != "flat" for r in of_stream):
            parts.append("\\* Each scale factor in a process of its own, by `run`; the others in one process, by `flat`.")
    return parts


def _at_several_scales(records: Sequence[Record]) -> list[Record]:
    """Measurements at several scales: of ``flat``, else of ``run``."""
    scales: dict[tuple[str, tuple[str, str, str]], list[Record]] = {}
    for r in records:
        if r["scenario"] in ("flat", "tpch") and r["status"] == "ok":
            scales.setdefault((r["scenario"], _changes_of(r)), []).append(r)
    several = {place: found for place, found in scales.items() if len({r["sf"] for r in found}) > 1}
    chosen = (found for (how, changes), found in several.items() if how == "flat" or ("flat", changes) not in several)
    return [r for found in chosen for r in found]


def _changes_of(r: Record) -> tuple[str, str, str]:
    return r["query"], r["stream"], r["size"]


def _flat_table(records: Sequence[Record]) -> str:
    rows = []
    for query in sorted({r["query"] for r in records}, key=QUERIES.index):
        of_query = sorted((r for r in records if r["query"] == query), key=lambda r: float(r["sf"]))
        first = of_query[0]["incremental"]
        for r in of_query:
            walls = [e["incremental"]["wall"] for e in r["epochs"]]
            part = max(1, len(walls) // 4)
            aged = _median(walls[-part:]) / _median(walls[:part])
            own = r["incremental"]
            by_first = [f"{own[seconds] / first[seconds]:.2f}" for seconds in ("wall_p50", "cpu_p50")]
            name = query if r["scenario"] == "flat" else f"{query} \\*"
            rows.append([name, f"{r['sf']:g}", _s(own["wall_p50"]), *by_first, f"{aged:.2f}", _s(r["full"]["wall_p50"])])
    head = ["query", "SF", "epoch s (p50)", "by the smallest SF", "its CPU s so", "last quarter of epochs by the first"]
    return table([*head, "full s (p50)"], rows)


def _others(records: Sequence[Record]) -> list[str]:
    def of(scenario: str) -> list[Record]:
        return [r for r in records if r["scenario"] == scenario and r["status"] == "ok"]

    sections: list[tuple[str, str, list[str], Callable[[Record], list[str]]]] = [
        (
            "fixed",
            "Fixed cost (hardly any data)",
            ["query", "plan nodes", "incremental s (p50)", "p95", "jobs", "full s (p50)", "ratio"],
            lambda r: [
                r["query"],
                str(r["plan_nodes"]),
                _s(r["incremental"]["wall_p50"]),
                _s(r["incremental"]["wall_p95"]),
                f"{r['incremental']['jobs']:.0f}",
                _s(r["full"]["wall_p50"]),
                f"{r['ratio']:.2f}",
            ],
        ),
        (
            "indexed",
            "With indexes of sources",
            ["query", "SF", "stream", "indexes", "epoch s (p50)", "p95", "full s", "ratio", "backfill and indexes s", "bytes"],
            lambda r: [
                r["query"],
                f"{r['sf']:g}",
                f"{r['stream']}, {_size(r['size'])}",
                ", ".join(f"{table}.{column}" for table, columns in r["indexes"].items() for column in columns),
                _s(r["incremental"]["wall_p50"]),
                _s(r["incremental"]["wall_p95"]),
                _s(r["full"]["wall_p50"]),
                f"{r['ratio']:.2f}",
                _s(r["backfill"]["wall"]),
                f"{_bytes(r['index_bytes'])} / {_bytes(r['input_bytes'])}",
            ],
        ),
        (
            "flights",
            "The flights demo (a day an epoch)",
            ["views", "one run s (p50)", "p95", "jobs", "in full, one after the other, s (p50)", "ratio"],
            lambda r: [
                str(r["views"]),
                _s(r["wall_p50"]),
                _s(r["wall_p95"]),
                f"{r['jobs']:.0f}",
                _s(r["full_p50"]),
                f"{r['ratio']:.2f}",
            ],
        ),
        (
            "idle",
            "Nothing changed",
            ["SF", "views", "run s (p50)", "p95", "Spark jobs"],
            lambda r: [f"{r['sf']:g}", str(r["views"]), _s(r["wall_p50"]), _s(r["wall_p95"]), str(r["jobs"])],
        ),
        (
            "shared",
            "Many views in one run",
            ["SF", "views", "one run s (p50)", "sum of runs alone s (p50)", "ratio"],
            lambda r: [f"{r['sf']:g}", str(r["views"]), _s(r["together_p50"]), _s(r["alone_p50"]), f"{r['ratio']:.2f}"],
        ),
        (
            "cold",
            "A fresh process",
            ["SF", "query", "process start to end s (p50)", "p95", "of it: session", "of it: epoch"],
            lambda r: [
                f"{r['sf']:g}",
                r["query"],
                _s(r["wall_p50"]),
                _s(r["wall_p95"]),
                _s(r["parts"]["session"]),
                _s(r["parts"]["epoch"]),
            ],
        ),
        (
            "click",
            "A click in Dagster",
            [
                "views",
                "nothing to do, s (p50)",
                "p95",
                "rows changed",
                "with a server, s (p50)",
                "p95",
                "without, s (p50)",
                "p95",
            ],
            lambda r: [
                str(r["views"]),
                *(_s(r["idle"][value]) for value in ("p50", "p95")),
                r["size"],
                *(_s(r[way][value]) for way in ("warm", "cold") for value in ("p50", "p95")),
            ],
        ),
        (
            "aging",
            "Age",
            ["SF", "query", "rows an epoch", "seconds of an epoch after a number of epochs", "compacted", "state"],
            lambda r: [
                f"{r['sf']:g}",
                r["query"],
                r["size"],
                ", ".join(f"{n}: {_s(s)}" for n, s in r["after"].items()),
                f"{len(r['compactions'])} times" if r["compacts"] else "no",
                _bytes(r["state_bytes"]),
            ],
        ),
    ]
    parts = []
    for scenario, title, head, cells in sections:
        found = of(scenario)
        if found:
            parts += [f"## {title}", table(head, [cells(r) for r in sorted(found, key=_place)])]
    return parts


def peers_section(records: Sequence[Record]) -> list[str]:
    """Seconds of an epoch, ours, Spark's in full, and other systems'.

    Over the same stream.
    """
    peers = [r for r in records if r["scenario"] in PEERS and r["status"] in ("ok", "refused")]
    groups = sorted({(r["sf"], r["query"], r["stream"], r["size"]) for r in peers}, key=lambda g: (g[0], QUERIES.index(g[1])))
    if not groups:
        return []
    ours = {(r["sf"], r["query"], r["stream"], r["size"]): r for r in records if r["scenario"] in ("flat", "tpch")}
    theirs = {(r["scenario"], r["sf"], r["query"], r["stream"], r["size"]): r for r in peers}
    rows = []
    for group in groups:
        own = ours.get(group)
        measured = own is not None and own["status"] == "ok"
        cells = [_s(own[way]["wall_p50"]) if own and measured else "" for way in ("incremental", "full")]
        found = [theirs.get((peer, *group)) for peer in PEERS]
        cells += ["" if r is None else "no" if r["status"] == "refused" else f"{r['wall_p50']:.3f}" for r in found]
        rows.append([f"SF {group[0]:g} {group[1]}", *cells])
    head = ["", "an epoch s (p50)", "Spark in full", "DuckDB in full", "pg_ivm", "Pathway"]
    return ["## Beside other systems", _PEERS_INTRO.format(size=_size(groups[0][3])), table(head, rows)]


_PEERS_INTRO = """
The same {size} appended an epoch. DuckDB runs the query in full over the same Parquet files. PostgreSQL maintains a view
without its ORDER BY and LIMIT by pg_ivm. It runs as PGlite, compiled to WebAssembly, on one core, with its tables in memory.
Its seconds include copying the rows into them. Pathway holds everything in the memory of a process that stays up, and money
as floating-point numbers. Its programs are written by hand for four queries, q3 without its LIMIT. Its figure is the
difference of two runs, uncertain by some tenths. *no*: it refuses the query, or has no program for it.
"""


def _place(r: Record) -> tuple[float, int, str]:
    return r["sf"], QUERIES.index(r["query"]) if r["query"] in QUERIES else -1, r["query"]


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else math.nan


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
