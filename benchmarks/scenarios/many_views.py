"""The heap that many wide views leave behind in one process.

The views have what hurts: wide rows without a key, decimals and doubles, windows, joins of joins, views over views. A
constant of its own makes each view another query.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.harness import verify
from benchmarks.measure import live_heap
from benchmarks.scenarios.common import Run
from relstate_dagster.jobs.api import EpochRunner, ViewReport, Warehouse
from relstate_dagster.jobs.script import ScriptSession

#: Beside the data of scale factors, as if it were one.
_SF: Final = 0.0

SOURCES: Final = """
CREATE TABLE trades (trade_id BIGINT, traded_at TIMESTAMP, status STRING, type STRING, is_cash BOOLEAN, symbol STRING,
  quantity INT, bid DECIMAL(8,2), account_id BIGINT, executor STRING, price DECIMAL(18,4), charge DECIMAL(10,2),
  commission DECIMAL(10,2), tax DECIMAL(38,10), weight DOUBLE);
CREATE TABLE trade_events (trade_id BIGINT, happened_at TIMESTAMP, status STRING);
CREATE TABLE statuses (status STRING, status_name STRING);
CREATE TABLE types (type STRING, type_name STRING, is_sell BOOLEAN, is_market BOOLEAN);
CREATE TABLE market (day DATE, symbol STRING, close DOUBLE, high DOUBLE, low DOUBLE, volume BIGINT);
INSERT INTO statuses VALUES ('A', 'Active'), ('C', 'Completed'), ('X', 'Canceled'), ('P', 'Pending');
INSERT INTO types VALUES ('TMB', 'Market Buy', false, true), ('TMS', 'Market Sell', true, true),
  ('TLB', 'Limit Buy', false, false), ('TLS', 'Limit Sell', true, false);
"""

_TRADES: Final = """
INSERT INTO trades SELECT id, timestamp_seconds(1400000000 + id * 37),
  element_at(array('A', 'C', 'X', 'P'), 1 + CAST(pmod(hash(id, 1), 4) AS INT)),
  element_at(array('TMB', 'TMS', 'TLB', 'TLS'), 1 + CAST(pmod(hash(id, 2), 4) AS INT)),
  hash(id, 3) % 2 = 0, concat('S', pmod(hash(id, 4), 100)), pmod(hash(id, 5), 900) + 1, pmod(hash(id, 6), 90000) / 100,
  pmod(hash(id, 7), 300), concat('Executor ', pmod(hash(id, 8), 90)), pmod(hash(id, 9), 90000) / 100,
  pmod(hash(id, 10), 9000) / 100, pmod(hash(id, 11), 9000) / 100, pmod(hash(id, 12), 9000) / 7, hash(id, 13) / 1000.0D
  FROM range({first}, {end});
INSERT INTO trade_events SELECT id DIV 3, timestamp_seconds(1400000000 + (id DIV 3) * 37 + id % 3 * 60),
  element_at(array('P', 'A', 'C'), 1 + CAST(id % 3 AS INT)) FROM range({first} * 3, {end} * 3);
INSERT INTO market SELECT date_add(DATE'2014-05-13', CAST(id DIV 100 AS INT)), concat('S', id % 100), hash(id, 1) / 1e7D,
  hash(id, 2) / 1e7D, hash(id, 3) / 1e7D, pmod(hash(id, 4), 100000) FROM range({first}, {end});
"""

#: Each is a query with its number ``{n}`` in it; ``{wide}`` is the first view of the same round.
_QUERIES: Final = {
    "wide": """
SELECT t.*, e.happened_at, s.status_name, y.type_name, y.is_sell, {n} AS round,
  lag(e.happened_at) OVER (PARTITION BY t.trade_id ORDER BY e.happened_at) AS before,
  row_number() OVER (PARTITION BY t.trade_id ORDER BY e.happened_at DESC) AS newest
FROM trades t JOIN trade_events e ON t.trade_id = e.trade_id JOIN statuses s ON e.status = s.status
  JOIN types y ON t.type = y.type
WHERE t.quantity > {n}""",
    "current": """
SELECT *, price * quantity AS amount, CASE WHEN is_sell THEN -weight ELSE weight END AS signed_weight,
  concat_ws('/', symbol, executor, type_name) AS label, coalesce(tax, 0) + charge + commission + {n} AS costs
FROM {wide} WHERE newest = 1""",
    "by_symbol": """
SELECT symbol, type_name, count(*) AS trades, sum(price * quantity) AS amount, avg(tax) AS tax, stddev(price) AS spread,
  sum(weight) AS weight, min(bid) AS least, max(bid) AS most, count(DISTINCT executor) AS executors, {n} AS round
FROM {wide} GROUP BY symbol, type_name""",
    "at_market": """
SELECT t.trade_id, t.symbol, t.price, t.tax, t.weight, t.executor, m.day, m.close, m.high, m.low, m.volume,
  m.close * t.quantity AS at_close, m.high - m.low AS swing, {n} AS round
FROM trades t JOIN market m ON t.symbol = m.symbol AND CAST(t.traded_at AS DATE) = m.day WHERE m.volume > {n}""",
    "history": """
SELECT *, avg(close) OVER (PARTITION BY symbol ORDER BY day ROWS BETWEEN 5 PRECEDING AND CURRENT ROW) AS smooth,
  max(high) OVER (PARTITION BY symbol ORDER BY day) AS highest, {n} AS round
FROM market WHERE volume >= {n}""",
}


def run(run_: Run, views: int, epochs: int, trades: int) -> None:
    """Measure it once."""
    run_.counts_stages = False
    named = {"scenario": "many-views", "sf": _SF, "query": f"{views} views", "stream": "mixed", "size": str(trades)}
    run_.record(named, lambda: measure(run_, views, epochs, trades), line)


def line(record: dict[str, Any]) -> str:
    """One line."""
    heap, seconds = record["heap_mb"], record["seconds_a_view"]
    return (
        f"heap {heap['tenth']:.0f} MB after ten views, {heap['built']:.0f} after all, {heap['last']:.0f} after "
        f"{len(record['epochs'])} epochs; built in {seconds['first']:.1f} s a view at first, {seconds['last']:.1f} at last"
    )


def queries(views: int) -> Iterator[tuple[str, str]]:
    """Names and queries of some views, each after those that it reads."""
    kinds = list(_QUERIES)
    for number in range(views):
        n, kind = number // len(kinds), kinds[number % len(kinds)]
        yield f"{kind}_{n}", _QUERIES[kind].format(n=n, wide=f"wide_{n}")


def rows(first: int, count: int) -> str:
    """Statements that insert trades with their events and market rows."""
    return _TRADES.format(first=first, end=first + count)


def changes(first: int, count: int) -> str:
    """Statements that insert trades, and delete and update some older ones."""
    return (
        rows(first, count)
        + f"DELETE FROM trades WHERE pmod(hash(trade_id, {first}), 500) = 0;"
        + f"UPDATE trades SET weight = -weight, tax = tax + 0.5 WHERE pmod(hash(trade_id, {first}), 400) = 1"
    )


def measure(run_: Run, views: int, epochs: int, trades: int) -> dict[str, Any]:
    """Views are built one by one, and all brought through some epochs."""
    root = run_.work(_SF) / "warehouse"
    shutil.rmtree(root, ignore_errors=True)
    warehouse, reports = Warehouse(root), list[ViewReport]()
    session = ScriptSession(run_.spark.newSession(), warehouse, on_report=reports.append)
    _statements(session, SOURCES + rows(0, trades))
    built, heap = list[float](), dict[str, float]()
    for number, (name, query) in enumerate(queries(views), start=1):
        started = time.perf_counter()
        _statements(session, f"CREATE MATERIALIZED VIEW {name} AS {query}")
        built.append(time.perf_counter() - started)
        if number == min(10, views):
            heap["tenth"] = live_heap(run_.spark)
    heap["built"] = live_heap(run_.spark)
    runner, measured = EpochRunner(run_.spark, warehouse), list[dict[str, float]]()
    for number in range(epochs):
        _statements(session, changes(trades + 20 * number, 20))
        started = time.perf_counter()
        done = list(runner.run())
        slowest = max(sum(report.seconds.values()) for report in done)
        measured.append({"seconds": time.perf_counter() - started, "slowest": slowest, "heap_mb": live_heap(run_.spark)})
        run_.console.print(f"epoch {number + 1}: {measured[-1]}", style="dim", highlight=False)
    heap["last"] = live_heap(run_.spark)
    verify(runner)
    session.close()
    few = max(1, min(20, views // 4))
    first, last = sorted(built[few // 2 : few // 2 + few]), sorted(built[-few:])
    seconds_a_view = {"first": first[len(first) // 2], "last": last[len(last) // 2]}
    return {"views": views, "heap_mb": heap, "built_seconds": built, "seconds_a_view": seconds_a_view, "epochs": measured}


def _statements(session: ScriptSession, text: str) -> None:
    for result in session.run(text):
        if isinstance(result, tuple):
            raise result[1]
