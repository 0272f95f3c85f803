"""Maintains views in Pathway, in a Python of its own without this project.

Reads a job (JSON) from the file in its argument: ``{query, tables: {name: [parquet of the base, of each epoch or null]}}``
and prints one line: ``{seconds, rows, total}``, the total being the sum of the last column of the view. Each epoch is a time of
its own in the dataflow; money is held as floating-point numbers, since Pathway has no decimals.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pathway as pw  # type: ignore[import-not-found]
import pyarrow as pa
import pyarrow.parquet as pq


def _days(text: str) -> int:
    return (date.fromisoformat(text) - date(1970, 1, 1)).days


def q1(lineitem: Any) -> Any:
    """Pricing summary."""
    rows = lineitem.filter(pw.this.l_shipdate <= _days("1998-09-02"))
    rows = rows.with_columns(disc_price=pw.this.l_extendedprice * (1 - pw.this.l_discount))
    return rows.groupby(pw.this.l_returnflag, pw.this.l_linestatus).reduce(
        pw.this.l_returnflag,
        pw.this.l_linestatus,
        sum_qty=pw.reducers.sum(pw.this.l_quantity),
        sum_base_price=pw.reducers.sum(pw.this.l_extendedprice),
        sum_charge=pw.reducers.sum(pw.this.disc_price * (1 + pw.this.l_tax)),
        avg_qty=pw.reducers.avg(pw.this.l_quantity),
        avg_price=pw.reducers.avg(pw.this.l_extendedprice),
        avg_disc=pw.reducers.avg(pw.this.l_discount),
        count_order=pw.reducers.count(),
        sum_disc_price=pw.reducers.sum(pw.this.disc_price),
    )


def q3(customer: Any, orders: Any, lineitem: Any) -> Any:
    """Revenue of orders not shipped, without the top ten."""
    of_segment = customer.filter(pw.this.c_mktsegment == "BUILDING")
    early = orders.filter(pw.this.o_orderdate < _days("1995-03-15"))
    late = lineitem.filter(pw.this.l_shipdate > _days("1995-03-15"))
    joined = of_segment.join(early, pw.left.c_custkey == pw.right.o_custkey).select(
        pw.right.o_orderkey, pw.right.o_orderdate, pw.right.o_shippriority
    )
    lines = joined.join(late, pw.left.o_orderkey == pw.right.l_orderkey).select(
        pw.right.l_orderkey,
        pw.left.o_orderdate,
        pw.left.o_shippriority,
        price=pw.right.l_extendedprice * (1 - pw.right.l_discount),
    )
    return lines.groupby(pw.this.l_orderkey, pw.this.o_orderdate, pw.this.o_shippriority).reduce(
        pw.this.l_orderkey, pw.this.o_orderdate, pw.this.o_shippriority, revenue=pw.reducers.sum(pw.this.price)
    )


def q6(lineitem: Any) -> Any:
    """Revenue change."""
    rows = lineitem.filter(
        (pw.this.l_shipdate >= _days("1994-01-01"))
        & (pw.this.l_shipdate < _days("1995-01-01"))
        & (pw.this.l_discount > 0.045)
        & (pw.this.l_discount < 0.075)
        & (pw.this.l_quantity < 24)
    )
    return rows.reduce(revenue=pw.reducers.sum(pw.this.l_extendedprice * pw.this.l_discount))


def q12(orders: Any, lineitem: Any) -> Any:
    """Shipping modes and order priority."""
    rows = lineitem.filter(
        ((pw.this.l_shipmode == "MAIL") | (pw.this.l_shipmode == "SHIP"))
        & (pw.this.l_commitdate < pw.this.l_receiptdate)
        & (pw.this.l_shipdate < pw.this.l_commitdate)
        & (pw.this.l_receiptdate >= _days("1994-01-01"))
        & (pw.this.l_receiptdate < _days("1995-01-01"))
    )
    urgent = (pw.left.o_orderpriority == "1-URGENT") | (pw.left.o_orderpriority == "2-HIGH")
    joined = orders.join(rows, pw.left.o_orderkey == pw.right.l_orderkey).select(
        pw.right.l_shipmode, high=pw.if_else(urgent, 1, 0), low=pw.if_else(urgent, 0, 1)
    )
    return joined.groupby(pw.this.l_shipmode).reduce(
        pw.this.l_shipmode, high_line_count=pw.reducers.sum(pw.this.high), low_line_count=pw.reducers.sum(pw.this.low)
    )


VIEWS: dict[str, Callable[..., Any]] = {"q1": q1, "q3": q3, "q6": q6, "q12": q12}


def main(job_file: str) -> None:
    """Run one job."""
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    tables = {name: _stream(files) for name, files in job["tables"].items()}
    view = VIEWS[job["query"]](**tables)
    rows: dict[Any, float] = {}

    def changed(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            rows[key] = float(list(row.values())[-1])
        else:
            rows.pop(key, None)

    pw.io.subscribe(view, on_change=changed)
    started = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "rows": len(rows), "total": sum(rows.values())}))


def _stream(files: list[str | None]) -> Any:
    frames = [_frame(file, 2 * n) for n, file in enumerate(files) if file is not None]
    return pw.debug.table_from_pandas(pd.concat(frames, ignore_index=True))


def _frame(file: str, at: int) -> pd.DataFrame:
    rows = pq.read_table(file)
    for place, field in enumerate(rows.schema):
        if pa.types.is_decimal(field.type):
            rows = rows.set_column(place, field.name, rows.column(place).cast(pa.float64()))
        elif pa.types.is_date(field.type):
            rows = rows.set_column(place, field.name, rows.column(place).cast(pa.int32()).cast(pa.int64()))
    frame: pd.DataFrame = rows.to_pandas()
    return frame.assign(__time__=at, __diff__=1)


if __name__ == "__main__":
    main(sys.argv[1])
