"""Sums and means of floating-point numbers without the rows of their groups.

The oracle of sums is Python's fractions, to the last bit, and that of views the query.
"""

from __future__ import annotations

import math
import random
import struct
from fractions import Fraction
from pathlib import Path

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan import float_sums
from relstate_dagster.jobs.plan.nodes import Aggregate, Field, walk
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.state_lib.constants import ROW_ID
from relstate_dagster.state_lib.errors import DeclarationError, StateError
from tests.epoch.scripts import Script
from tests.operators.histories import seeds_of
from tests.operators.lab import Lab, Row

_COLUMNS = (Field("g", "int"), Field("x", "double"), Field("f", "float"), Field("n", "bigint"))
_RELATIONS = {
    "bag": Relation("bag", _COLUMNS),
    "log": Relation("log", _COLUMNS, (ROW_ID,), True, (Field(ROW_ID, "bigint", False),)),
}
_CALLS = (
    "sum(x) AS s, avg(x) AS a, sum(f) AS sf, avg(f) AS af, sum(CAST(n AS DOUBLE)) AS sn, avg(DISTINCT x) AS d, "
    "sum(DISTINCT f) AS df, sum(x) FILTER (WHERE f > 0) AS sx"
)
_QUERIES = {
    "groups": f"SELECT g, {_CALLS} FROM {{}} GROUP BY g",
    "one group": "SELECT sum(x) AS s, avg(DISTINCT f) AS d, count(*) AS n FROM {}",
    "in a join": "SELECT a.g, a.s, b.a, b.g AS other FROM (SELECT g, sum(x) AS s FROM {0} GROUP BY g) AS a "
    "JOIN (SELECT g, avg(f) AS a FROM {0} GROUP BY g) AS b ON a.g = b.g WHERE a.s > 0 OR b.a IS NULL",
}
_KINDS = {"count", "exact sum", "exact avg", "distinct exact sum", "distinct exact avg"}


def _number(draw: random.Random, kind: int) -> float:
    """A number of a kind: of one size, of any size, one that others cancel, or one that makes ties of rounding."""
    sign = draw.choice([-1.0, 1.0])
    match kind:
        case 0:
            return draw.uniform(-1e6, 1e6)
        case 1:
            return round(draw.uniform(-1000, 1000), 2)
        case 2:
            return sign * 2.0 ** draw.uniform(-130, 154)
        case 3:
            return float(draw.randint(-5, 5))
        case 4:
            return draw.choice([1e16, -1e16, 1.0, -1.0, 1e-10, 2.0**100, -(2.0**100), 0.0, -0.0])
        case 5:
            # Any FLOAT, subnormal ones too.
            return struct.unpack("<f", struct.pack("<I", draw.getrandbits(32)))[0]
        case _:
            return sign * (1 + 2.0**-52 * draw.randrange(3)) * 2.0 ** draw.choice([-53, -54, -1, 0, 1, 52, 53])


def _group(draw: random.Random) -> list[tuple[float, int]]:
    """Numbers with weights; some are taken away again."""
    kind, rows = draw.randrange(7), []
    often = draw.choice([1, 1, 1, 2**28 + 1])
    for _ in range(draw.choice([1, 2, 3, 5, 60]) if often == 1 else 3):
        x = _number(draw, kind if draw.random() < 0.9 else draw.randrange(7))
        rows.append((x if math.isfinite(x) else 1.5, draw.choice([1, 1, 1, 2, 3, -1]) * often))
        if draw.random() < 0.3:
            rows.append((rows[-1][0], -rows[-1][1]))
    return rows


@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize("seed", seeds_of("exact sums"))
def test_sums_are_exact_to_the_last_bit(spark: SparkSession, seed: int, ansi: bool) -> None:
    draw = random.Random(seed)
    groups = [_group(draw) for _ in range(600)]
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    rows = [(g, x, w) for g, group in enumerate(groups) for x, w in group]
    frame = session.createDataFrame(rows, "g int, x double, w bigint").repartition(3)
    frame.createOrReplaceTempView("drawn")
    kept = f"SELECT g, {float_sums.change('x', 'w', 'sum(x)')} AS kept FROM drawn GROUP BY g"
    found = dict(session.sql(f"SELECT g, {float_sums.total('kept', '1L')} AS total FROM ({kept})").collect())
    for g, group in enumerate(groups):
        assert found[g].hex() == float(sum(Fraction(x) * w for x, w in group)).hex(), group


def _value(draw: random.Random, of_float: bool) -> float | None:
    """No numbers that Spark's own sum cannot tell apart, so that it is an oracle."""
    if draw.random() < 0.2:
        return draw.choice([None, math.nan, math.inf, -math.inf, 0.0, -0.0])
    x = draw.choice([draw.uniform(1, 1e3), 10 ** draw.uniform(-9, 9), draw.uniform(1, 2) * 2.0**-52, 0.1, 3.0])
    return struct.unpack("<f", struct.pack("<f", x))[0] if of_float else x


def _row(draw: random.Random) -> Row:
    group = draw.choice([None, 0, 1, 2, 3, 4])
    return (group, _value(draw, False), _value(draw, True), draw.choice([None, 7, 2**62 + 1]))


@pytest.mark.parametrize("name", _QUERIES)
def test_deletions_are_taken_back(spark: SparkSession, name: str) -> None:
    draw = random.Random(seeds_of(name)[0])
    with Lab(spark, _QUERIES[name].format("bag"), _RELATIONS, strict=True) as lab:
        kinds = {call.kind for node in walk(lab.plan) if isinstance(node, Aggregate) for call in node.calls}
        assert kinds <= _KINDS
        rows: dict[Row, int] = {}
        for _ in range(3):
            gone = {row: -draw.randint(1, n) for row, n in rows.items() if draw.random() < 0.5}
            added = {_row(draw): draw.choice([1, 1, 2]) for _ in range(15)}
            lab.step({"bag": [*gone.items(), *added.items()]})
            lab.check()
            left = {row: n + gone.get(row, 0) for row, n in rows.items()}
            rows = {row: n for row, n in left.items() if n} | added
        lab.step({"bag": [(row, -n) for row, n in rows.items()]})
        lab.check()


@pytest.mark.parametrize("name", list(_QUERIES)[:-1])
def test_rows_that_are_only_added(spark: SparkSession, name: str) -> None:
    draw = random.Random(seeds_of(name)[0])
    with Lab(spark, _QUERIES[name].format("log"), _RELATIONS) as lab:
        for epoch in range(3):
            lab.step({"log": [((*_row(draw), 10 * epoch + n), 1) for n in range(5)]})
            lab.check()


def test_numbers_that_cancel_leave_what_is_small(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's sum of the same rows is 0."""
    script = Script(spark, tmp_path / "warehouse")
    script.run("CREATE TABLE t (k INT, x DOUBLE, PRIMARY KEY (k)); CREATE MATERIALIZED VIEW v AS SELECT sum(x) AS s FROM t")
    script.run("INSERT INTO t VALUES (1, 1e17D), (2, 0.1D), (3, 1e-30D); REFRESH")
    script.run("DELETE FROM t WHERE k = 1; REFRESH")
    assert script.rows("SELECT * FROM v") == [(0.1,)]
    script.run("DELETE FROM t WHERE k = 2; REFRESH")
    assert script.rows("SELECT * FROM v") == [(1e-30,)]
    script.run("INSERT INTO t VALUES (4, double('NaN')), (5, double('Infinity')); REFRESH")
    script.verify()
    script.run("DELETE FROM t WHERE k = 4; REFRESH")
    assert script.rows("SELECT * FROM v") == [(math.inf,)]
    script.run("DELETE FROM t WHERE k = 5; REFRESH")
    assert script.rows("SELECT * FROM v") == [(1e-30,)]
    script.verify()


_OUT_OF_RANGE = r"sum\(x\) has met a number .* leave such numbers out, or set 'state.float_sums' = 'rows' for the view"


@pytest.mark.parametrize("number", ["1e-300D", "5e46D", "-1.7976931348623157E308D", "4.9E-324D", "3e-41D"])
@pytest.mark.parametrize("weight", [1, -1])
def test_a_number_out_of_range_is_no_sum(spark: SparkSession, number: str, weight: int) -> None:
    rows = f"SELECT * FROM VALUES (1.5D, 1L), ({number}, {weight}L) AS rows(x, w)"
    with pytest.raises(SparkRuntimeException, match=_OUT_OF_RANGE):
        spark.sql(f"SELECT {float_sums.change('x', 'w', 'sum(x)')} FROM ({rows})").collect()


def test_a_view_with_a_number_out_of_range_stays_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run("CREATE TABLE t (k INT, x DOUBLE, PRIMARY KEY (k)); CREATE MATERIALIZED VIEW v AS SELECT sum(x) AS s FROM t")
    script.run("INSERT INTO t VALUES (1, 1.5D); REFRESH")
    with pytest.raises(StateError, match=f"view v, epoch 3: {_OUT_OF_RANGE}: 1.0E-300"):
        script.run("INSERT INTO t VALUES (2, 1e-300D); REFRESH")
    assert script.rows("SELECT * FROM v") == [(1.5,)]
    kept = "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('state.float_sums' = '{}') AS SELECT sum(x) AS s, avg(x) AS a FROM t"
    with pytest.raises(DeclarationError, match=r"'state\.float_sums' = 'all' is unknown; it is one of exact, rows"):
        script.run(f"DROP MATERIALIZED VIEW v; {kept.format('all')}")
    script.run(kept.format("rows"))
    (aggregate,) = (node for node in walk(script.warehouse.read().views["v"].plan) if isinstance(node, Aggregate))
    assert {call.kind for call in aggregate.calls} == {"materialized", "count"}
    for statement in ("DELETE FROM t WHERE k = 1", "INSERT INTO t VALUES (3, 1e300D)"):
        script.run(f"{statement}; REFRESH")
        script.verify()
