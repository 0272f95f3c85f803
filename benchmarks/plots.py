"""Plots as SVG, without a display, the same bytes for the same results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.queries import QUERIES

mpl.rcParams["svg.hashsalt"] = "relstate"
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")


def ratios(records: Sequence[dict[str, Any]], path: Path, title: str) -> None:
    """Full seconds by incremental seconds of each query, one bar a scale factor."""
    queries = [q for q in QUERIES if any(r["query"] == q for r in records)]
    sfs = sorted({r["sf"] for r in records})
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(sfs)
    for n, sf in enumerate(sfs):
        of_query = {r["query"]: r["ratio"] for r in records if r["sf"] == sf}
        places = [i + (n - (len(sfs) - 1) / 2) * width for i, q in enumerate(queries) if q in of_query]
        # From 1 upwards or downwards: the axis is logarithmic, and 1 is where both ways take as long.
        heights = [of_query[q] - 1 for q in queries if q in of_query]
        axes.bar(places, heights, width, bottom=1, label=f"SF {sf:g}", color=_COLOURS[n % len(_COLOURS)])
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks(range(len(queries)), queries)
    axes.set_ylabel("full seconds / incremental seconds")
    axes.set_title(title)
    axes.legend()
    _save(figure, path)


def flatness(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Median seconds of an epoch and a full run, by scale factor.

    One colour a query.
    """
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for n, query in enumerate(sorted({r["query"] for r in records}, key=QUERIES.index)):
        of_query = sorted((r for r in records if r["query"] == query), key=lambda r: float(r["sf"]))
        sfs = [r["sf"] for r in of_query]
        colour = _COLOURS[n % len(_COLOURS)]
        axes.plot(sfs, [r["incremental"]["wall_p50"] for r in of_query], "o-", color=colour, label=f"{query} incremental")
        axes.plot(sfs, [r["full"]["wall_p50"] for r in of_query], "x--", color=colour, label=f"{query} in full")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set_xlabel("scale factor")
    axes.set_ylabel("seconds (median)")
    axes.legend(fontsize="small", ncols=2)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})
