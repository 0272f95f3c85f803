"""Change streams: changes of each epoch, from generated data and a seed alone.

``none``       nothing.
``appended``   new orders with their lines, under keys beyond the largest.
``inserted``   new orders with their lines, under keys in the gaps of the standard's sparse key space (its RF1).
``deleted``    orders and their lines go (the standard's RF2).
``scattered``  updates of rows with random keys, in every table in proportion to its rows, at least one in each. delta-rs
               rewrites every file that has one of the rows, in another order of rows.
``marked``     the same updates by Spark, of tables with deletion vectors: the old rows are marked, the new ones appended.

A size is a number of rows an epoch (``100``) or a share of the base (``1%``). It is a share of orders and lines together
for the streams of orders, and of all tables for updates. An order has one to seven lines, so the rows of an epoch are near
the size, not equal to it; the exact number is recorded.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.data import plain
from benchmarks.queries import KEYS, TABLES

STREAMS: tuple[str, ...] = ("none", "appended", "inserted", "deleted", "scattered", "marked")
#: Streams of updates in all tables, by how they are written.
UPDATES: tuple[str, ...] = ("scattered", "marked")
SIZES: tuple[str, ...] = ("100", "10000", "0.1%", "1%", "10%")

#: The standard uses the first 8 of every 32 order keys; RF1 fills others.
_USED, _BLOCK = 8, 32
#: New orders are copies of some of the first orders, so that what is held does not grow with the data.
_TEMPLATE_ROWS = 200_000
#: Deletions leave at least this share of the orders.
_KEPT = 0.2


@dataclass(frozen=True)
class Change:
    """Changes of one table in one epoch.

    Parameters
    ----------
    kind : ``append`` rows, ``delete`` by the columns of ``rows``, or ``update`` the other columns of ``rows`` by the key.
    by : the columns that a deletion or an update finds its rows by.
    """

    table: str
    kind: Literal["append", "delete", "update"]
    rows: pa.Table
    by: tuple[str, ...] = ()


@dataclass
class Base:
    """Generated tables, of their columns only those the streams need."""

    folder: Path
    _keys: dict[str, pa.Table] = field(default_factory=dict)

    def rows(self, table: str) -> int:
        """Number of a table's rows."""
        return int(pq.read_metadata(self._path(table)).num_rows)

    def keys(self, table: str) -> pa.Table:
        """The key columns of a table."""
        if table not in self._keys:
            self._keys[table] = pq.read_table(self._path(table), columns=list(KEYS[table]))
        return self._keys[table]

    def templates(self) -> tuple[pa.Table, pa.Table]:
        """Some orders with all of their lines.

        Both files are in the order of the order key.
        """
        orders = self._head("orders", _TEMPLATE_ROWS)
        last = orders["o_orderkey"][-1].as_py()
        lines = self._head("lineitem", 7 * _TEMPLATE_ROWS)
        return orders, lines.filter(pc.less_equal(lines["l_orderkey"], last))

    def _head(self, table: str, rows: int) -> pa.Table:
        batches, count = [], 0
        with pq.ParquetFile(self._path(table)) as file:
            for batch in file.iter_batches():
                batches.append(batch)
                count += batch.num_rows
                if count >= rows:
                    break
        return plain(pa.Table.from_batches(batches)).slice(0, rows)

    def _path(self, table: str) -> Path:
        return self.folder / f"{table}.parquet"


def rows_wanted(base: Base, stream: str, size: str) -> int:
    """Rows that a size asks for in one epoch of a stream."""
    if not size.endswith("%"):
        return int(size)
    tables = TABLES if stream in UPDATES else ("orders", "lineitem")
    return max(1, round(sum(base.rows(t) for t in tables) * float(size[:-1]) / 100))


def epochs_possible(base: Base, stream: str, size: str) -> int | None:
    """Maximum number of epochs by keys; ``None`` without a limit."""
    orders = base.rows("orders")
    each = _orders_wanted(base, stream, size)
    if stream == "inserted":
        return int(orders * (_BLOCK - _USED) / _USED / each)
    if stream == "deleted":
        return int(orders * (1 - _KEPT) / each)
    return None


def changes(base: Base, stream: str, size: str, seed: int) -> Iterator[list[Change]]:
    """The changes of one epoch after the other, parents before children (deletions: children first)."""
    if stream not in STREAMS:
        raise ValueError(f"no stream named {stream}; there are {', '.join(STREAMS)}")
    named = "scattered" if stream in UPDATES else stream
    rng = np.random.default_rng([seed, zlib.crc32(f"{named} {size}".encode())])
    if stream == "none":
        while True:
            yield []
    elif stream in UPDATES:
        yield from _scattered(base, rows_wanted(base, stream, size), rng)
    elif stream == "deleted":
        yield from _deleted(base, _orders_wanted(base, stream, size), rng)
    else:
        yield from _new_orders(base, stream, _orders_wanted(base, stream, size), rng)


def _orders_wanted(base: Base, stream: str, size: str) -> int:
    per_order = 1 + base.rows("lineitem") / base.rows("orders")
    return max(1, round(rows_wanted(base, stream, size) / per_order))


def _new_orders(base: Base, stream: str, count: int, rng: np.random.Generator) -> Iterator[list[Change]]:
    orders, lines = base.templates()
    lines_of = _Lines(lines)
    if stream == "inserted":
        existing = base.keys("orders")["o_orderkey"].to_numpy()
        unused = np.setdiff1d(np.arange(1, existing.max() + 1), existing, assume_unique=True)
        free = rng.permutation(unused)
    else:
        highest = int(pc.max(base.keys("orders")["o_orderkey"]).as_py())
    used = 0
    while True:
        picked = rng.integers(0, orders.num_rows, count)
        if stream == "inserted":
            if used + count > len(free):
                return
            keys = free[used : used + count]
        else:
            place = np.arange(used, used + count)
            keys = (highest // _BLOCK + 1 + place // _USED) * _BLOCK + place % _USED
        used += count
        copied, line_keys = lines_of.of(orders["o_orderkey"].to_numpy()[picked], keys)
        yield [
            Change("orders", "append", _with(orders.take(pa.array(picked)), "o_orderkey", keys)),
            Change("lineitem", "append", _with(copied, "l_orderkey", line_keys)),
        ]


class _Lines:
    """The lines of orders, found by order key."""

    def __init__(self, lines: pa.Table) -> None:
        self._lines = lines
        self._keys = lines["l_orderkey"].to_numpy()

    def of(self, orders: np.ndarray[Any, Any], keys: np.ndarray[Any, Any]) -> tuple[pa.Table, np.ndarray[Any, Any]]:
        """The lines of some orders, and for each line the new key of its order."""
        first = np.searchsorted(self._keys, orders, "left")
        counts = np.searchsorted(self._keys, orders, "right") - first
        starts = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        return self._lines.take(pa.array(starts + np.arange(counts.sum()))), np.repeat(keys, counts)


def _deleted(base: Base, count: int, rng: np.random.Generator) -> Iterator[list[Change]]:
    keys = rng.permutation(base.keys("orders")["o_orderkey"].to_numpy())
    for start in range(0, int(len(keys) * (1 - _KEPT)) - count + 1, count):
        gone = pa.array(np.sort(keys[start : start + count]))
        yield [
            Change("lineitem", "delete", pa.table({"l_orderkey": gone}), ("l_orderkey",)),
            Change("orders", "delete", pa.table({"o_orderkey": gone}), ("o_orderkey",)),
        ]


def _scattered(base: Base, count: int, rng: np.random.Generator) -> Iterator[list[Change]]:
    rows = {t: base.rows(t) for t in TABLES}
    total = sum(rows.values())
    while True:
        found = []
        for table in TABLES:
            wanted = min(rows[table], max(1, round(count * rows[table] / total)))
            picked = np.sort(rng.choice(rows[table], wanted, replace=False))
            columns = dict(zip(KEYS[table], (base.keys(table)[k].take(pa.array(picked)) for k in KEYS[table]), strict=True))
            new = _new_values(table, wanted, rng)
            found.append(Change(table, "update", pa.table({**columns, **new}), KEYS[table]))
        yield found


_SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
_PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
_MODES = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")


def _new_values(table: str, n: int, rng: np.random.Generator) -> dict[str, pa.Array]:
    """New values of the columns that an update changes: within their domains, never a key."""

    def money(low: float, high: float, step: int = 1) -> pa.Array:
        # Drawn as whole numbers of cents, so that the decimals are the same on every machine.
        cents = rng.integers(round(low * 100) // step, round(high * 100) // step, n, endpoint=True) * step
        return pa.array([Decimal(int(c)).scaleb(-2) for c in cents], pa.decimal128(15, 2))

    def one_of(values: tuple[str, ...]) -> pa.Array:
        return pa.array([values[i] for i in rng.integers(0, len(values), n)])

    if table == "lineitem":
        return {
            "l_quantity": money(1, 50, step=100),
            "l_extendedprice": money(900, 105_000),
            "l_discount": money(0, 0.1),
            "l_shipmode": one_of(_MODES),
        }
    return {
        "orders": lambda: {"o_totalprice": money(850, 560_000), "o_orderpriority": one_of(_PRIORITIES)},
        "customer": lambda: {"c_acctbal": money(-999.99, 9999.99), "c_mktsegment": one_of(_SEGMENTS)},
        "part": lambda: {"p_retailprice": money(900, 2100), "p_size": pa.array(rng.integers(1, 51, n), pa.int32())},
        "partsupp": lambda: {"ps_supplycost": money(1, 1000), "ps_availqty": pa.array(rng.integers(1, 10_000, n), pa.int32())},
        "supplier": lambda: {"s_acctbal": money(-999.99, 9999.99)},
        "nation": lambda: {"n_comment": pa.array([f"comment {i}" for i in rng.integers(0, 1_000_000, n)])},
        "region": lambda: {"r_comment": pa.array([f"comment {i}" for i in rng.integers(0, 1_000_000, n)])},
    }[table]()


def _with(table: pa.Table, column: str, values: np.ndarray[Any, Any]) -> pa.Table:
    place = table.schema.get_field_index(column)
    return table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))
