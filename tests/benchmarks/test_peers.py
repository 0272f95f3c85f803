"""What other systems are given: the rows of a stream, and queries as they write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.peers.changes import appended_rows, base_rows, unordered
from benchmarks.queries import query_text
from benchmarks.report import peers_section
from benchmarks.series import build_series
from tests.benchmarks.test_streams import write_tiny


def test_the_rows_of_each_epoch(tmp_path: Path) -> None:
    write_tiny(tmp_path / "sf0.001" / "parquet", orders=100)
    series = build_series(tmp_path, 0.001, "appended", "100", epochs=2, seed=1)
    found = list(appended_rows(series, ["orders", "lineitem", "part"]))
    assert [{t: rows.num_rows for t, rows in epoch.items()} for epoch in found] == list(series.rows)
    base = base_rows(series, "orders")
    assert base.num_rows == 100
    assert found[0]["orders"].column_names == base.column_names
    assert pa.types.is_string(found[0]["orders"].schema.field("o_orderpriority").type)
    assert not set(found[0]["orders"]["o_orderkey"].to_pylist()) & set(base["o_orderkey"].to_pylist())


def test_a_query_without_its_order() -> None:
    text = unordered(query_text("q3", 1), "postgres")
    assert "ORDER BY" not in text
    assert "LIMIT" not in text
    assert "GROUP BY l_orderkey" in text


def test_peers_stand_beside_our_own_figures() -> None:
    stream: dict[str, Any] = {"sf": 0.1, "query": "q3", "stream": "appended", "size": "10000"}
    ours = {"scenario": "flat", "status": "ok", "incremental": {"wall_p50": 0.5}, "full": {"wall_p50": 2.0}, **stream}
    duckdb = {"scenario": "duckdb", "status": "ok", "wall_p50": 0.04, **stream}
    refused = {"scenario": "pg_ivm", "status": "refused", "reason": "no LIMIT", **stream}
    text = "\n".join(peers_section([ours, duckdb, refused]))
    assert "| SF 0.1 q3 | 0.50 | 2.00 | 0.040 | no |  |" in text
    assert peers_section([ours]) == []
