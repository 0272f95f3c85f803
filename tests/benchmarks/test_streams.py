"""Streams: the same for the same seed, and tables that stay whole."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from benchmarks.queries import KEYS, QUERIES, TABLES, query_text, tables_of
from benchmarks.series import build_series
from benchmarks.streams import STREAMS, Base, Change, changes, epochs_possible

EPOCHS = 3


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TPC-H's tables in miniature: the columns that streams touch, 400 orders."""
    folder = tmp_path_factory.mktemp("tpch")
    write_tiny(folder / "sf0.001" / "parquet", orders=400)
    return folder


def write_tiny(folder: Path, orders: int) -> None:
    """Generated tables with every column of TPC-H; no generator needed."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)

    def money(n: int) -> pa.Array:
        return pa.array(rng.integers(1, 1000, n)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(15, 2), safe=False)

    def text(prefix: str, n: int) -> pa.Array:
        return pa.array([f"{prefix}{i}" for i in range(n)])

    def date(n: int) -> pa.Array:
        return pa.array(rng.integers(9000, 10000, n).astype("int32")).cast(pa.date32())

    def number(n: int, high: int) -> pa.Array:
        return pa.array(rng.integers(1, high + 1, n))

    keys = np.array([32 * (i // 8) + i % 8 for i in range(1, orders + 1)])
    lines = np.repeat(keys, np.arange(orders) % 7 + 1)
    n = len(lines)
    tables = {
        "region": {"r_regionkey": number(1, 1), "r_name": ["ASIA"], "r_comment": text("r", 1)},
        "nation": {"n_nationkey": number(1, 1), "n_name": ["CHINA"], "n_regionkey": number(1, 1), "n_comment": text("n", 1)},
        "supplier": {"s_suppkey": pa.array(range(1, 4)), "s_name": text("s", 3), "s_acctbal": money(3)},
        "customer": {"c_custkey": pa.array(range(1, 31)), "c_mktsegment": text("c", 30), "c_acctbal": money(30)},
        "part": {"p_partkey": pa.array(range(1, 41)), "p_retailprice": money(40), "p_size": number(40, 50).cast(pa.int32())},
        "partsupp": {
            "ps_partkey": pa.array(range(1, 41)),
            "ps_suppkey": number(40, 3),
            "ps_availqty": number(40, 99).cast(pa.int32()),
            "ps_supplycost": money(40),
        },
        "orders": {
            "o_orderkey": pa.array(keys),
            "o_custkey": number(orders, 30),
            "o_totalprice": money(orders),
            "o_orderdate": date(orders),
            "o_orderpriority": pa.array([("1-URGENT", "2-HIGH", "5-LOW")[i % 3] for i in range(orders)]),
        },
        "lineitem": {
            "l_orderkey": pa.array(lines),
            "l_linenumber": pa.array(np.concatenate([np.arange(1, i % 7 + 2) for i in range(orders)]).astype("int32")),
            "l_partkey": number(n, 40),
            "l_suppkey": number(n, 3),
            "l_quantity": money(n),
            "l_extendedprice": money(n),
            "l_discount": money(n),
            "l_shipdate": pa.array([8800 + i % 365 for i in range(n)], pa.int32()).cast(pa.date32()),
            "l_commitdate": pa.array([8810 + i % 365 for i in range(n)], pa.int32()).cast(pa.date32()),
            "l_receiptdate": pa.array([8820 + i % 365 for i in range(n)], pa.int32()).cast(pa.date32()),
            "l_shipmode": pa.array([("MAIL", "SHIP", "AIR")[i % 3] for i in range(n)]),
        },
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def epochs(data: Path, stream: str, size: str, seed: int = 1) -> list[list[Change]]:
    return list(islice(changes(Base(data / "sf0.001" / "parquet"), stream, size, seed), EPOCHS))


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_is_the_same_for_the_same_seed(data: Path, stream: str) -> None:
    assert epochs(data, stream, "1%") == epochs(data, stream, "1%")
    if stream != "none":
        assert epochs(data, stream, "1%") != epochs(data, stream, "1%", seed=2)


@pytest.mark.parametrize("stream", STREAMS)
def test_tables_stay_whole(data: Path, stream: str) -> None:
    base = {t: pq.read_table(data / "sf0.001" / "parquet" / f"{t}.parquet") for t in TABLES}
    tables = dict(base)
    for epoch in epochs(data, stream, "5%"):
        for change in epoch:
            tables[change.table] = applied(tables[change.table], change)
        for table, key in KEYS.items():
            counted = tables[table].group_by(list(key)).aggregate([([], "count_all")])
            assert pc.max(counted["count_all"]).as_py() == 1, f"{table} has a key twice"
        assert set(tables["lineitem"]["l_orderkey"].to_pylist()) == set(tables["orders"]["o_orderkey"].to_pylist())
        assert set(tables["orders"]["o_custkey"].to_pylist()) <= set(tables["customer"]["c_custkey"].to_pylist())
    grown = tables["orders"].num_rows - base["orders"].num_rows
    assert (grown > 0) == (stream in ("appended", "inserted"))
    assert (grown < 0) == (stream == "deleted")


def applied(table: pa.Table, change: Change) -> pa.Table:
    if change.kind == "append":
        assert change.rows.schema.names == table.schema.names
        return pa.concat_tables([table, change.rows.cast(table.schema)])
    if change.kind == "delete":
        return table.join(change.rows, keys=list(change.by), join_type="left anti")
    keys = table.select(list(change.by)).to_pylist()
    assert all(k in keys for k in change.rows.select(list(change.by)).to_pylist())
    return table


def test_new_keys_are_where_the_stream_says(data: Path) -> None:
    old = pq.read_table(data / "sf0.001" / "parquet" / "orders.parquet")["o_orderkey"].to_pylist()
    for epoch in epochs(data, "appended", "100"):
        assert min(epoch[0].rows["o_orderkey"].to_pylist()) > max(old)
    for epoch in epochs(data, "inserted", "100"):
        assert max(epoch[0].rows["o_orderkey"].to_pylist()) < max(old)
        assert not set(epoch[0].rows["o_orderkey"].to_pylist()) & set(old)


def test_deletions_run_out(data: Path) -> None:
    base = Base(data / "sf0.001" / "parquet")
    possible = epochs_possible(base, "deleted", "10%")
    assert possible == len(list(changes(base, "deleted", "10%", 1))) == 8
    assert epochs_possible(base, "appended", "10%") is None


def test_a_series_is_written_once_and_replayed(data: Path, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    series = build_series(data, 0.001, "deleted", "100", 2, 1)
    assert build_series(data, 0.001, "deleted", "100", 2, 1, pytest.fail) == series
    replay = series.replay(tmp_path / "replay", ("orders",))
    counts = [DeltaTable(replay.path("orders")).to_pyarrow_table().num_rows]
    for _ in range(series.epochs):
        changed = replay.advance()
        counts.append(DeltaTable(replay.path("orders")).to_pyarrow_table().num_rows)
        assert counts[-2] - counts[-1] == changed["orders"]
    assert counts[0] == 400


def test_marked_rows_are_updated_as_scattered_ones(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    by_delta_rs = build_series(data, 0.001, "scattered", "100", 1, 1)
    by_spark = build_series(data, 0.001, "marked", "100", 1, 1, spark=lambda: spark)
    assert by_spark.rows == by_delta_rs.rows
    for table in ("orders", "lineitem", "nation"):
        expected, marked = (spark.read.format("delta").load(str(s.folder / table)) for s in (by_delta_rs, by_spark))
        assert expected.exceptAll(marked).isEmpty()
        assert marked.exceptAll(expected).isEmpty()
    replay = by_spark.replay(tmp_path / "replay", ("orders",))
    before = spark.read.format("delta").load(replay.path("orders")).count()
    assert replay.advance()["orders"] > 0
    log = (tmp_path / "replay" / "orders" / "_delta_log" / f"{by_spark.versions[1]['orders']:020d}.json").read_text()
    assert '"deletionVector":{' in log, "files are not rewritten"
    assert spark.read.format("delta").load(replay.path("orders")).count() == before


def test_every_query_has_a_text() -> None:
    for query in QUERIES:
        assert set(tables_of(query_text(query, 0.1))) <= set(TABLES)
    assert "0.001" in query_text("q11", 0.1)
    assert tables_of(query_text("q13", 1)) == ("customer", "orders")
