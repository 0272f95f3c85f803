"""A series of appended rows as Arrow tables, for systems without Delta.

Queries are in these systems' SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import sqlglot
from deltalake import DeltaTable

from benchmarks.series import Series


def base_rows(series: Series, table: str) -> pa.Table:
    """A table before the first epoch."""
    return DeltaTable(series.folder / table, version=series.versions[0][table]).to_pyarrow_table()


def appended_rows(series: Series, tables: Sequence[str]) -> Iterator[dict[str, pa.Table]]:
    """For each epoch, the rows appended to each of some tables that has any."""
    for before, after in zip(series.versions, series.versions[1:], strict=False):
        found = {}
        for table in tables:
            if after[table] > before[table]:
                feed = DeltaTable(series.folder / table).load_cdf(before[table] + 1, after[table])
                rows = pa.table(feed.read_all())
                found[table] = _plain(rows.drop_columns([c for c in rows.column_names if c.startswith("_")]))
        yield found


def _plain(rows: pa.Table) -> pa.Table:
    """Views of strings, which not all of Arrow takes, as strings."""
    fields = [f.with_type(pa.string()) if pa.types.is_string_view(f.type) else f for f in rows.schema]
    return rows.cast(pa.schema(fields))


def write_csv(rows: pa.Table, path: Path) -> str:
    """Rows as CSV without a header; returns where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.csv.write_csv(rows, path, pyarrow.csv.WriteOptions(include_header=False))
    return str(path)


def unordered(text: str, dialect: str) -> str:
    """A query in another system's SQL, without ORDER BY and LIMIT at its top.

    Maintained views have neither.
    """
    tree = sqlglot.parse_one(text, read="spark")
    tree.set("order", None)
    tree.set("limit", None)
    return tree.sql(dialect=dialect)
