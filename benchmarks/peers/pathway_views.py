"""Pathway: dataflows in memory, written by hand for the queries it expresses.

In ``pathway_script.py``.

It asks for versions of its own of what others use as well, so it runs in a Python of its own, which the environment variable
``RELSTATE_BENCH_PATHWAY`` names.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.peers.changes import appended_rows, base_rows, unordered
from benchmarks.queries import columns_of, query_text, tables_of
from benchmarks.series import Series

_PYTHON = "RELSTATE_BENCH_PATHWAY"
#: The queries that are written for it, and the column that each has last there.
_LAST_COLUMN = {"q1": "sum_disc_price", "q3": "revenue", "q6": "revenue", "q12": "low_line_count"}


def missing() -> str | None:
    """Missing installations."""
    return None if os.environ.get(_PYTHON) else f"Pathway is left out: ${_PYTHON} names no Python that has it"


def measure(series: Series, sf: float, queries: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each query that is written for it: ``backfill`` seconds, ``walls`` (all epochs' mean)."""
    for query in queries:
        if query not in _LAST_COLUMN:
            yield query, {"refused": "not written for it"}
            continue
        with tempfile.TemporaryDirectory() as folder:
            tables = _files(series, query_text(query, sf), Path(folder))
            job = Path(folder) / "job.json"
            backfill = _run(query, {table: files[:1] for table, files in tables.items()}, job)["seconds"]
            found = _run(query, tables, job)
        expected = _expected(series, query, sf)
        if found["rows"] != expected[0] or not math.isclose(found["total"], expected[1], rel_tol=1e-6):
            raise RuntimeError(f"Pathway's {query} has {found['rows']} rows, {found['total']} in all; expected {expected}")
        # It does not say when an epoch is done; two runs, with and without epochs, show what they all add.
        yield query, {**found, "backfill": backfill, "walls": [(found["seconds"] - backfill) / series.epochs] * series.epochs}


def _run(query: str, tables: dict[str, list[str | None]], job: Path) -> dict[str, Any]:
    job.write_text(json.dumps({"query": query, "tables": tables}), encoding="utf-8")
    script = Path(__file__).with_name("pathway_script.py")
    done = subprocess.run([os.environ[_PYTHON], str(script), str(job)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _files(series: Series, text: str, folder: Path) -> dict[str, list[str | None]]:
    files: dict[str, list[str | None]] = {}
    tables = tables_of(text)
    for table in tables:
        rows = base_rows(series, table)
        pq.write_table(rows.select(columns_of(text, rows.column_names)), folder / f"{table}.parquet")
        files[table] = [str(folder / f"{table}.parquet")]
    for number, epoch in enumerate(appended_rows(series, tables)):
        for table in tables:
            path = folder / f"{table}-{number}.parquet"
            if table in epoch:
                pq.write_table(epoch[table].select(columns_of(text, epoch[table].column_names)), path)
            files[table].append(str(path) if table in epoch else None)
    return files


def _expected(series: Series, query: str, sf: float) -> tuple[int, float]:
    """Rows of the query after the last epoch, and its last column's sum."""
    import duckdb

    text = query_text(query, sf)
    with duckdb.connect() as connection:
        for table in tables_of(text):
            rows = DeltaTable(series.folder / table, version=series.versions[-1][table]).to_pyarrow_table()
            connection.register(table, rows)
        summed = f"SELECT count(*), sum({_LAST_COLUMN[query]}) FROM ({unordered(text, 'duckdb')})"
        rows_, total = connection.execute(summed).fetchall()[0]
    return int(rows_), float(total)
