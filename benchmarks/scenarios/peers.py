"""The same queries run in full by DuckDB, over the same Parquet files of the same Delta tables."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import sqlglot
from deltalake import DeltaTable

from benchmarks.data import base_tables
from benchmarks.measure import quantile
from benchmarks.queries import query_text, tables_of
from benchmarks.scenarios.common import Run


def run(run_: Run, sfs: Sequence[float], queries: Sequence[str]) -> None:
    """Measure every query that is not measured yet; nothing where DuckDB is not installed."""
    try:
        import duckdb  # noqa: F401 - an extra
    except ImportError:
        run_.console.print("duckdb is not installed (pip install 'relstate-dagster[bench]'); peers are left out")
        return
    for sf in sfs:
        for query in queries:
            named = {"scenario": "duckdb", "sf": sf, "query": query, "stream": "none", "size": "0"}
            run_.record(named, lambda s=sf, q=query: measure(run_, s, q), line)  # type: ignore[misc]


def line(record: dict[str, Any]) -> str:
    """One line."""
    return f"DuckDB full {record['wall_p50']:.3f} s"


def measure(run_: Run, sf: float, query: str) -> dict[str, Any]:
    """Run a query into a table of DuckDB's, again and again, on as many threads as there are cores."""
    import duckdb

    text = query_text(query, sf)
    base = base_tables(run_.data, sf)
    walls, rows = [], 0
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {os.cpu_count() or 1}")
        for table in tables_of(text):
            files = [
                f"{base / table}/{p}" for p in DeltaTable(base / table).get_add_actions(flatten=True).column("path").to_pylist()
            ]
            connection.execute(f"CREATE VIEW {table} AS FROM read_parquet({files})")
        statement = sqlglot.transpile(text, read="spark", write="duckdb")[0]
        for number in range(run_.warm_up + run_.epochs):
            started = time.perf_counter()
            connection.execute(f"CREATE OR REPLACE TABLE result AS {statement}")
            if number >= run_.warm_up:
                walls.append(time.perf_counter() - started)
        rows = connection.execute("SELECT count(*) FROM result").fetchall()[0][0]
    return {"wall_p50": quantile(walls, 0.5), "wall_p95": quantile(walls, 0.95), "rows": rows, "threads": os.cpu_count()}
