"""The 22 TPC-H queries in Spark SQL, with the standard's validation parameters."""

from __future__ import annotations

import re
from pathlib import Path

QUERIES: tuple[str, ...] = tuple(f"q{n}" for n in range(1, 23))

#: Primary keys of the tables.
KEYS: dict[str, tuple[str, ...]] = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}

TABLES: tuple[str, ...] = tuple(KEYS)


def query_text(name: str, sf: float) -> str:
    """A query's text at a scale factor.

    q11 compares with a fraction that the standard divides by it.
    """
    text = Path(__file__).with_name("tpch").joinpath(f"{name}.sql").read_text(encoding="utf-8").strip()
    if name == "q11":
        text = text.replace("0.0001", f"{0.0001 / sf:.12f}".rstrip("0"))
    return re.sub(r" +--.*", "", text)


def tables_of(text: str) -> tuple[str, ...]:
    """The tables that a query reads."""
    words = _words(text)
    return tuple(t for t in TABLES if t in words)


def columns_of(text: str, columns: list[str]) -> list[str]:
    """Columns that a query uses.

    In TPC-H a column's name says which table it is of.
    """
    words = _words(text)
    return [c for c in columns if c in words]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z_0-9]+", re.sub(r"'[^']*'", "", text)))
