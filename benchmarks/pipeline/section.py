"""The pipeline's part of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from benchmarks.tables import bytes_text, seconds_text, table

Record = dict[str, Any]

#: A view is listed if it takes this many times as long as its query in full.
SLOWER: Final = 1.2

_INTRO: Final = """
A retail brokerage's warehouse of raw files, and of views over views. They parse the files, keep versions of customers,
accounts and securities, join facts with the versions of their time, and sum up. The build is the first batch. Each later
batch adds two days: 0.3 % more rows, some tens of updates, and a new snapshot of prospects. Ours is one run over all views.
Plain Spark runs the same queries in full, and writes each as a Delta table after those that it reads. Both work on as many
views at a time, in processes of their own with the same heap. Batch 2 is the first work of a fresh process; batch 3 follows
it there. The seconds of ours have the planning of the views in them; those of neither have the start of Spark. *Others* are
processor seconds of other processes of the machine meanwhile.
"""


def pipeline_section(records: Sequence[Record]) -> list[str]:
    """Batches by both, and the views that take longer than their queries in full."""
    found = [r for r in records if r["scenario"] == "pipeline" and r["status"] == "ok"]
    if not found:
        return []
    found.sort(key=lambda r: (r["sf"], r["query"], r["size"]))
    head = ["batch", "ours s", "plain s", "ratio", "CPU s", "others", "jobs", "read", "greatest use of the heap"]
    parts = ["## A pipeline of views", _INTRO]
    for record in found:
        parts.append(f"SF {record['sf']:g}, {record['query']}, {record['size']}; seconds, or ours / plain:")
        parts.append(table(head, [_cells(number, batch) for number, batch in enumerate(record["batches"], start=1)]))
        slower = sorted(slower_views(record), key=lambda row: row[2] / row[3], reverse=True)
        if slower:
            rows = [
                [n, str(b), seconds_text(own), seconds_text(full), f"{own / full:.1f}", str(k)] for n, b, own, full, k in slower
            ]
            parts.append(f"Views that took more than {SLOWER:g} times as long as their query in full beside others:")
            parts.append(table(["view", "batch", "ours s", "full s", "times", "rows changed"], rows))
    return parts


def slower_views(record: Record) -> Iterator[tuple[str, int, float, float, int]]:
    """Views that take longer than their queries, by batch after the build.

    Each with the seconds of both, and changed rows.
    """
    for number, batch in enumerate(record["batches"][1:], start=2):
        for name, own in batch["ours"]["views"].items():
            full = batch["plain"]["views"][name]["seconds"]
            if own["seconds"] > SLOWER * full:
                yield name, number, own["seconds"], full, own["rows"]


def _cells(number: int, batch: Record) -> list[str]:
    ours, plain = batch["ours"], batch["plain"]

    def both(key: str) -> str:
        return f"{round(ours[key])} / {round(plain[key])}" if key in ours and key in plain else ""

    heap, read = (f"{bytes_text(ours[key])} / {bytes_text(plain[key])}" for key in ("peak_heap", "read_bytes"))
    times = [f"{ours['wall']:.1f}", f"{plain['wall']:.1f}", f"**{batch['ratio']:.2f}**"]
    return [str(number), *times, both("cpu"), both("cpu_others"), both("jobs"), read, heap]
