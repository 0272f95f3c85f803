"""PostgreSQL with pg_ivm: views that triggers keep up to date with every statement.

It runs as PGlite does, PostgreSQL compiled to WebAssembly under Node.js, in memory: pg_ivm comes compiled for it from the npm
registry. One core, and slower than PostgreSQL itself.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.peers.changes import appended_rows, base_rows, unordered, write_csv
from benchmarks.queries import KEYS, TABLES, query_text, tables_of
from benchmarks.series import Series

_HERE = Path(__file__).parent

#: What joins look for, besides primary keys.
_INDEXES = {
    "orders": ("o_custkey",),
    "lineitem": ("l_partkey", "l_suppkey"),
    "partsupp": ("ps_suppkey",),
    "customer": ("c_nationkey",),
    "supplier": ("s_nationkey",),
}


def missing() -> str | None:
    """Missing installations."""
    if shutil.which("node") is None or not (_HERE / "node_modules").exists():
        return f"pg_ivm is left out: Node.js, and `npm install --legacy-peer-deps` in {_HERE.name}, are needed"
    return None


def measure(series: Series, sf: float, queries: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each query as a view, and its time in each epoch.

    Rows are copied into the tables, and the view is kept up to date.

    Yields
    ------
    query, and ``backfill`` seconds, ``walls`` (seconds of each epoch), ``rows``; or ``refused``, the reason.
    """
    texts = {q: unordered(query_text(q, sf), "postgres") for q in queries}
    with tempfile.TemporaryDirectory() as folder:
        yield from _run(_job(series, texts, Path(folder)))


def _job(series: Series, texts: dict[str, str], folder: Path) -> Path:
    """Job of ``pg_ivm.mjs``, with its rows as CSV beside it."""
    tables = [t for t in TABLES if any(t in tables_of(text) for text in texts.values())]
    base = {t: base_rows(series, t) for t in tables}
    work = {
        "setup": [_ddl(t, rows.schema) for t, rows in base.items()],
        "base": {t: write_csv(rows, folder / f"{t}.csv") for t, rows in base.items()},
        "epochs": [
            {t: write_csv(rows, folder / f"{t}-{n}.csv") for t, rows in epoch.items()}
            for n, epoch in enumerate(appended_rows(series, tables))
        ],
        "views": texts,
    }
    job = folder / "job.json"
    job.write_text(json.dumps(work), encoding="utf-8")
    return job


def _run(job: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    command = ["node", "--max-old-space-size=8192", str(_HERE / "pg_ivm.mjs"), str(job)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found = json.loads(line)
            query = found.pop("query")
            if found.get("differing"):
                raise RuntimeError(f"pg_ivm's {query} differs from its query in {found['differing']} rows")
            yield query, found if "refused" in found else {**found, "walls": found["epochs"]}
    if process.returncode:
        raise RuntimeError(f"node ended with {process.returncode}")


def _ddl(table: str, schema: pa.Schema) -> str:
    columns = ", ".join(f"{field.name} {_type(field.type)} NOT NULL" for field in schema)
    indexes = "".join(f"; CREATE INDEX ON {table} ({column})" for column in _INDEXES.get(table, ()))
    return f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({', '.join(KEYS[table])})){indexes}"


def _type(data_type: pa.DataType) -> str:
    if pa.types.is_decimal(data_type):
        return f"numeric({data_type.precision}, {data_type.scale})"
    if pa.types.is_integer(data_type):
        return "bigint"
    return "date" if pa.types.is_date(data_type) else "text"
