"""DuckDB: the query in full over the same tables' files, after each epoch."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import sqlglot
from deltalake import DeltaTable

from benchmarks.queries import query_text, tables_of
from benchmarks.series import Series


def missing() -> str | None:
    """Missing installations."""
    return None if find_spec("duckdb") else "DuckDB is left out: pip install 'relstate-dagster[bench]'"


def measure(series: Series, sf: float, queries: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each query into a DuckDB table, on all cores.

    ``walls`` of each epoch, and ``rows``.
    """
    import duckdb

    for query in queries:
        text = query_text(query, sf)
        statement = sqlglot.transpile(text, read="spark", write="duckdb")[0]
        walls = []
        with duckdb.connect() as connection:
            connection.execute(f"SET threads = {os.cpu_count() or 1}")
            for versions in series.versions[1:]:
                for table in tables_of(text):
                    delta = DeltaTable(series.folder / table, version=versions[table])
                    paths = delta.get_add_actions(flatten=True).column("path").to_pylist()
                    files = [f"{series.folder / table}/{path}" for path in paths]
                    connection.execute(f"CREATE OR REPLACE VIEW {table} AS FROM read_parquet({files})")
                started = time.perf_counter()
                connection.execute(f"CREATE OR REPLACE TABLE result AS {statement}")
                walls.append(time.perf_counter() - started)
            rows = connection.execute("SELECT count(*) FROM result").fetchall()[0][0]
        yield query, {"walls": walls, "rows": rows}
