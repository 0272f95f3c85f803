"""The command: ``python -m benchmarks``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.data import base_tables, default_data
from benchmarks.queries import QUERIES, TABLES
from benchmarks.results import Results, newest
from benchmarks.scenarios import aging as aging_scenario
from benchmarks.scenarios import catalog as catalog_scenario
from benchmarks.scenarios import click as click_scenario
from benchmarks.scenarios import cold as cold_scenario
from benchmarks.scenarios import extremes as extremes_scenario
from benchmarks.scenarios import fixed as fixed_scenario
from benchmarks.scenarios import flights as flights_scenario
from benchmarks.scenarios import idle as idle_scenario
from benchmarks.scenarios import many_views as many_views_scenario
from benchmarks.scenarios import peers as peers_scenario
from benchmarks.scenarios import pipeline as pipeline_scenario
from benchmarks.scenarios import shared as shared_scenario
from benchmarks.scenarios import tpch
from benchmarks.scenarios.common import Run
from benchmarks.streams import SIZES, STREAMS

ROOT = Path(__file__).resolve().parents[1]
CURATED = ROOT / "benchmarks" / "results" / "curated.jsonl"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Views kept up to date by relstate, against the same queries run in full by the same Spark.\n\n"
    "Results are in --results and are not measured again, so a run may be interrupted and started again.",
)

Data = Annotated[
    Path | None, typer.Option(help="Folder of the generated data. [$RELSTATE_BENCH_DATA or ~/.cache/relstate/tpch]")
]
ResultsFile = Annotated[Path, typer.Option("--results", help="File to which results are appended, one JSON line each.")]
Again = Annotated[bool, typer.Option("--again", help="Measure what has been measured, too; the newest counts.")]
Epochs = Annotated[int, typer.Option(help="Measured epochs.", min=1)]
WarmUp = Annotated[int, typer.Option(help="Epochs before those, not measured.", min=0)]
FullEvery = Annotated[int, typer.Option(help="Epochs between two runs of the query in full.", min=1)]
Memory = Annotated[str, typer.Option(help="Heap of the JVM.")]
Seed = Annotated[int, typer.Option(help="Names the random changes.")]
Keep = Annotated[bool, typer.Option("--keep", help="Leave warehouses and written streams where they are.")]
FailFast = Annotated[bool, typer.Option("--fail-fast", help="Stop at the first failure.")]
OneSf = Annotated[float, typer.Option("--sf", help="Scale factor.")]
Sfs = Annotated[str, typer.Option("--sf", help="Scale factors, separated by commas.")]
Queries = Annotated[str, typer.Option("--queries", help="Such as q1,q3-q6; or all.")]
StreamNames = Annotated[str, typer.Option("--streams", help=f"Of {', '.join(STREAMS)}; or all.")]
OneSize = Annotated[str, typer.Option("--size", help="Rows an epoch, or a share of the base such as 1%.")]
OneQuery = Annotated[str, typer.Option("--query", help="Which query.")]
RESULTS = ROOT / "benchmarks" / "results" / "results.jsonl"


@app.command()
def data(sf: Sfs = "0.1", data: Data = None) -> None:
    """Generate TPC-H and load it as Delta tables.

    Every other command does so when it needs them.
    """
    for factor in _numbers(sf):
        typer.echo(str(base_tables(data or default_data(), factor)))


@app.command()
def run(
    sf: Sfs = "0.1",
    queries: Queries = "all",
    streams: StreamNames = "appended",
    sizes: Annotated[str, typer.Option(help=f"Rows or a share of the base an epoch, of {', '.join(SIZES)}; or all.")] = "100",
    epochs: Epochs = 20,
    warm_up: WarmUp = 3,
    full_every: FullEvery = 1,
    data: Data = None,
    results: ResultsFile = RESULTS,
    again: Again = False,
    memory: Memory = "6g",
    seed: Seed = 1,
    keep: Keep = False,
    fail_fast: FailFast = False,
) -> None:
    """TPC-H views over a stream: incremental epochs and full runs in turn."""
    run_ = _run(data, results, again, epochs, warm_up, memory, seed, keep, fail_fast, full_every)
    tpch.run(run_, _numbers(sf), _queries(queries), _of(streams, STREAMS), _of(sizes, SIZES, closed=False))
    _end(run_)


@app.command()
def flat(
    sf: Sfs = "0.01,0.1,1",
    queries: Queries = "q1,q3,q6,q12",
    streams: StreamNames = "appended",
    size: OneSize = "100",
    indexes: Annotated[
        str, typer.Option(help="Of tables by columns, such as lineitem.l_partkey,orders.o_custkey: recorded as `indexed`.")
    ] = "",
    epochs: Epochs = 40,
    warm_up: WarmUp = 3,
    full_every: FullEvery = 10,
    data: Data = None,
    results: ResultsFile = RESULTS,
    again: Again = False,
    memory: Memory = "6g",
    seed: Seed = 1,
    keep: Keep = False,
) -> None:
    """The same rows an epoch at several scale factors.

    Does its time depend on the size of the data, or on its age?
    """
    run_ = _run(data, results, again, epochs, warm_up, memory, seed, keep, full_every=full_every)
    run_.indexes = _indexes(indexes)
    scenario = "indexed" if run_.indexes else "flat"
    tpch.run(run_, _numbers(sf), _queries(queries), _of(streams, STREAMS), [size], scenario)
    _end(run_)


@app.command()
def fixed(
    epochs: Epochs = 20,
    warm_up: WarmUp = 5,
    data: Data = None,
    results: ResultsFile = RESULTS,
    again: Again = False,
    memory: Memory = "6g",
    seed: Seed = 1,
) -> None:
    """The fixed cost of an epoch, at SF 0.01.

    A join with an aggregate, and the query with the largest plan.
    """
    run_ = _run(data, results, again, epochs, warm_up, memory, seed)
    fixed_scenario.run(run_)
    _end(run_)


@app.command()
def catalog(
    epochs: Epochs = 10,
    warm_up: WarmUp = 3,
    data: Data = None,
    results: ResultsFile = RESULTS,
    again: Again = False,
    memory: Memory = "2g",
) -> None:
    """One view refreshed in a catalog of ten views, and of ten thousand."""
    run_ = _run(data, results, again, epochs, warm_up, memory)
    catalog_scenario.run(run_)
    _end(run_)


@app.command()
def extremes(
    values: Annotated[str, typer.Option(help="Numbers of values in a group, separated by commas.")] = "20000,3000000",
    epochs: Epochs = 10,
    warm_up: WarmUp = 3,
    data: Data = None,
    results: ResultsFile = RESULTS,
    again: Again = False,
    memory: Memory = "6g",
) -> None:
    """One changed row in small and large groups: max, max_by, DISTINCT, sum."""
    run_ = _run(data, results, again, epochs, warm_up, memory)
    extremes_scenario.run(run_, tuple(int(number) for number in _numbers(values)))
    _end(run_)


@app.command()
def flights(
    epochs: Epochs = 20,
    warm_up: WarmUp = 5,
    full_every: FullEvery = 5,
    data: Data = None,
    results: ResultsFile = RESULTS,
    again: Again = False,
    memory: Memory = "6g",
) -> None:
    """The flights demo: all of its views after each day played."""
    run_ = _run(data, results, again, epochs, warm_up, memory, full_every=full_every)
    flights_scenario.run(run_)
    _end(run_)


@app.command()
def idle(
    sf: OneSf = 0.01,
    views: Annotated[int, typer.Option(help="Number of views.")] = 50,
    epochs: Epochs = 20,
    warm_up: WarmUp = 3,
    data: Data = None,
    results: ResultsFile = RESULTS,
    again: Again = False,
    memory: Memory = "6g",
) -> None:
    """Many views, nothing changed: seconds of a run, which must start no Spark job."""
    run_ = _run(data, results, again, epochs, warm_up, memory)
    idle_scenario.run(run_, sf, views)
    _end(run_)


@app.command()
def shared(
    sf: OneSf = 0.1,
    views: Annotated[int, typer.Option(help="Number of views.")] = 20,
    epochs: Epochs = 10,
    warm_up: WarmUp = 2,
    data: Data = None,
    results: ResultsFile = RESULTS,
    again: Again = False,
    memory: Memory = "6g",
    seed: Seed = 1,
) -> None:
    """Many views in one run, against the sum of each alone."""
    run_ = _run(data, results, again, epochs, warm_up, memory, seed)
    shared_scenario.run(run_, sf, views)
    _end(run_)


@app.command()
def cold(
    sf: OneSf = 0.1,
    query: OneQuery = "q12",
    epochs: Epochs = 5,
    data: Data = None,
    results: ResultsFile = RESULTS,
    again: Again = False,
    memory: Memory = "2g",
    seed: Seed = 1,
) -> None:
    """From the start of a fresh process to the published view."""
    run_ = _run(data, results, again, epochs, 0, memory, seed)
    cold_scenario.run(run_, sf, query, epochs)
    _end(run_)


@app.command()
def click(
    epochs: Epochs = 10,
    warm: Annotated[int, typer.Option(help="Epochs that the server has done before.")] = 50,
    data: Data = None,
    results: ResultsFile = RESULTS,
    again: Again = False,
    memory: Memory = "2g",
) -> None:
    """From a click in Dagster to the end of the run."""
    run_ = _run(data, results, again, epochs, 0, memory, 1)
    click_scenario.run(run_, warm)
    _end(run_)


@app.command()
def many_views(
    views: Annotated[int, typer.Option(help="Views, in rounds of five kinds.")] = 200,
    epochs: Epochs = 20,
    trades: Annotated[int, typer.Option(help="Rows of a source; another has three times as many.")] = 2_000,
    data: Data = None,
    results: ResultsFile = RESULTS,
    again: Again = False,
    memory: Memory = "2g",
) -> None:
    """The driver's heap with many wide views in one process."""
    run_ = _run(data, results, again, epochs, 0, memory, 1)
    many_views_scenario.run(run_, views, epochs, trades)
    _end(run_)


@app.command()
def pipeline(
    sf: OneSf = 0.1,
    batches: Annotated[int, typer.Option(help="The historical load, and the batches after it.", min=1)] = 3,
    parallel: Annotated[int, typer.Option(help="Views at a time, of both.", min=1)] = 3,
    views: Annotated[str, typer.Option(help="Names of views, separated by commas, with what they read; or all.")] = "all",
    optimize: Annotated[
        bool | None, typer.Option(help="Whether our JVM optimizes code. [by the size of the work, as relstate run does]")
    ] = None,
    data: Data = None,
    results: ResultsFile = RESULTS,
    again: Again = False,
    heap: Annotated[str, typer.Option("--heap", help="Heap of each JVM.")] = "2g",
    keep: Keep = False,
) -> None:
    """A brokerage's warehouse of chained views, against plain Spark."""
    run_ = _run(data, results, again, batches, 0, heap, keep=keep)
    chosen = () if views == "all" else tuple(views.split(","))
    pipeline_scenario.run(run_, sf, batches, parallel, chosen, None if optimize is None else not optimize)
    _end(run_)


@app.command()
def aging(
    sf: OneSf = 0.1,
    query: OneQuery = "q12",
    size: OneSize = "100",
    epochs: Epochs = 1000,
    compact_every: Annotated[int, typer.Option(help="Epochs between compactions, where the runner has them.")] = 50,
    data: Data = None,
    results: ResultsFile = RESULTS,
    again: Again = False,
    memory: Memory = "6g",
    seed: Seed = 1,
) -> None:
    """An epoch's time after 1, 100 and 1000 epochs."""
    run_ = _run(data, results, again, epochs, 0, memory, seed)
    aging_scenario.run(run_, sf, query, epochs, compact_every, size)
    _end(run_)


@app.command()
def peers(
    sf: Sfs = "0.1",
    queries: Queries = "all",
    size: OneSize = "10000",
    systems: Annotated[str, typer.Option(help=f"Of {', '.join(peers_scenario.PEERS)}; or all.")] = "all",
    epochs: Epochs = 5,
    warm_up: WarmUp = 1,
    data: Data = None,
    results: ResultsFile = RESULTS,
    again: Again = False,
    memory: Memory = "2g",
    seed: Seed = 1,
) -> None:
    """Other installed systems over the same appended rows.

    DuckDB in full, PostgreSQL with pg_ivm, Pathway.
    """
    run_ = _run(data, results, again, epochs, warm_up, memory, seed)
    peers_scenario.run(run_, _numbers(sf), _queries(queries), size, _of(systems, list(peers_scenario.PEERS)))
    _end(run_)


@app.command()
def report(
    results: Annotated[
        list[Path] | None,
        typer.Option("--results", help="Files of results; the later ones win. [curated.jsonl and results.jsonl]"),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for benchmarks.md and benchmarks/*.svg.")] = ROOT / "docs",
    curate: Annotated[bool, typer.Option("--curate", help="Also keep what is reported as the committed results file.")] = False,
) -> None:
    """Write docs/benchmarks.md and its plots."""
    from benchmarks.report import write_report

    records = newest(results or [CURATED, RESULTS])
    if not records:
        raise typer.BadParameter("there are no results yet: `python -m benchmarks run`")
    typer.echo(str(write_report(records, out)))
    if curate:
        kept = Results(CURATED.with_suffix(".new"))
        kept.path.unlink(missing_ok=True)
        for record in records:
            kept.add(record)
        kept.path.replace(CURATED)


def _run(
    data: Path | None,
    results: Path,
    again: bool,
    epochs: int,
    warm_up: int,
    memory: str,
    seed: int = 1,
    keep: bool = False,
    fail_fast: bool = False,
    full_every: int = 1,
) -> Run:
    found = Results(results, again=again)
    return Run(data or default_data(), found, epochs, warm_up, full_every, seed, memory, keep, fail_fast)


def _end(run_: Run) -> None:
    if run_.results.failures:
        for failure in run_.results.failures:
            typer.secho(failure, fg="red", err=True)
        raise typer.Exit(1)


def _indexes(text: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name in filter(None, text.split(",")):
        table, dot, column = name.strip().partition(".")
        if table not in TABLES or not dot:
            raise typer.BadParameter(f"an index is named table.column, of the tables {', '.join(TABLES)}, and not {name!r}")
        found[table] = (*found.get(table, ()), column)
    return found


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _queries(text: str) -> list[str]:
    if text == "all":
        return list(QUERIES)
    found: list[str] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first not in QUERIES or (last or first) not in QUERIES:
            raise typer.BadParameter(f"{part} is no query; there are q1 to q22")
        found += QUERIES[QUERIES.index(first) : QUERIES.index(last or first) + 1]
    return found


def _of(text: str, known: Sequence[str], *, closed: bool = True) -> list[str]:
    if text == "all":
        return list(known)
    parts = text.split(",")
    unknown = [p for p in parts if p not in known]
    if unknown and closed:
        raise typer.BadParameter(f"{', '.join(unknown)}: there are {', '.join(known)}")
    return parts
