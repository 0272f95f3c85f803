"""Sums and means of decimals at the limits of their types."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from statistics import pvariance, variance

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from relstate_dagster.jobs.plan.decimal_sums import MOST_DIGITS, DecimalSum, decimal_parts
from relstate_dagster.jobs.plan.nodes import Field
from relstate_dagster.jobs.plan.relation import Relation
from tests.operators.histories import seeds_of
from tests.operators.lab import Lab, Row

_EXACT = Context(prec=200)
#: Precisions and scales at which something changes, and some in between.
_TYPES = [
    *((p, s) for p in (1, 8, 11) for s in sorted({0, p // 2, p})),
    *((p, s) for p in (12, 15, 18, 19, 20, 27) for s in sorted({0, 2, p})),
    *((p, s) for p in (28, 29, 38) for s in (0, 1, 2, 6, 7, 10, 20, 27, 28)),
    *((38, s) for s in (29, 34, 35, 36, 37)),
    (37, 37),
]


def _value(random_: random.Random, precision: int, scale: int) -> Decimal:
    """A drawn value, or an end of its type."""
    digits = random_.choice([precision, random_.randint(1, precision)])
    units = 10**digits - 1 if random_.random() < 0.2 else random_.randint(0, 10**digits - 1)
    return Decimal(random_.choice([units, -units])).scaleb(-scale, _EXACT)


@pytest.mark.parametrize("ansi", [True, False])
def test_totals_and_means_of_drawn_parts(spark: SparkSession, ansi: bool) -> None:
    """Totals and means of extreme parts that no rows could make."""
    session = spark.newSession()
    for key, value in {
        "ansi.enabled": str(ansi).lower(),
        "codegen.wholeStage": "false",
        "codegen.factoryMode": "NO_CODEGEN",
    }.items():
        session.conf.set(f"spark.sql.{key}", value)
    random_ = random.Random(seeds_of("decimal sums")[0])
    for precision, scale in random_.sample(_TYPES, 20 if ansi else 5):
        sums = DecimalSum(precision, scale)
        total_type = f"decimal({min(precision + 10, MOST_DIGITS)},{scale})"
        of_low = decimal_parts(sums.kept_as)
        assert of_low is not None
        rows = []
        for low, high, count in _parts(random_, sums):
            total = _EXACT.add(low, _EXACT.multiply(Decimal(high), _unit(sums)))
            mean = _rounded_mean(total, count, precision, scale)
            if _fits(total, total_type) and _fits(mean, f"decimal({min(precision + 4, 38)},{min(scale + 4, 38)})"):
                rows.append((low, high, count, total, mean))
        fields = (("low", T.DecimalType(*of_low)), ("high", T.LongType()), ("n", T.LongType()))
        frame = session.createDataFrame([row[:3] for row in rows], T.StructType([T.StructField(*f) for f in fields]))
        totals = frame.selectExpr("*", f"{sums.total('low', 'high' if sums.has_high_part else None)} AS total")
        found = totals.selectExpr("low", "high", "n", "total", f"{sums.mean('total', 'n')} AS mean").collect()
        assert len(rows) > 20, (precision, scale)
        for row, expected in zip(found, rows, strict=True):
            assert row.total == expected[3], (precision, scale, row)
            if precision + 4 > 15:
                assert row.mean == expected[4], (precision, scale, row, expected)


def _unit(sums: DecimalSum) -> Decimal:
    digits, scale = decimal_parts(sums.kept_as) or (0, 0)
    return Decimal(1).scaleb(digits - 10 - scale, _EXACT)


def _parts(random_: random.Random, sums: DecimalSum) -> Iterator[tuple[Decimal, int, int]]:
    digits, scale = decimal_parts(sums.kept_as) or (0, 0)
    for _ in range(200):
        high = random_.randint(-(10 ** random_.randint(1, 10)), 10 ** random_.randint(1, 10)) if sums.has_high_part else 0
        count = random_.choice([random_.randint(1, 10 ** random_.randint(1, 17)), 5 * 2 ** random_.randint(0, 20)])
        yield _value(random_, min(sums.precision + 10, digits), scale), random_.choice([0, high]), count


def _fits(value: Decimal, data_type: str) -> bool:
    precision, scale = decimal_parts(data_type) or (0, 0)
    return abs(value.scaleb(scale, _EXACT)) < 10**precision


def _rounded_mean(total: Decimal, count: int, precision: int, scale: int) -> Decimal:
    quotient = _EXACT.divide(total, Decimal(count))
    return quotient.quantize(Decimal(1).scaleb(-min(scale + 4, 38), _EXACT), ROUND_HALF_UP, _EXACT)


#: Rows of a group, at most: as many as ties of rounding need, whose counts have factors 2 and 5 only.
_GROUP_ROWS = (1, 2, 7, 64, 160, 713)


@pytest.mark.parametrize("seed", seeds_of("decimals"))
def test_sums_means_and_quotients_of_drawn_types(spark: SparkSession, seed: int) -> None:
    """Against Spark: as many columns of drawn types, over groups that grow, change and shrink."""
    random_ = random.Random(seed)
    types = random_.sample(_TYPES, 4)
    columns = tuple(Field(f"x{n}", f"decimal({p},{s})") for n, (p, s) in enumerate(types))
    relation = Relation("d", (Field("k", "int", False), Field("g", "int"), *columns), ("k",))
    calls = [
        f"sum({f.name}) AS s{n}, avg({f.name}) AS a{n}, avg(DISTINCT {f.name}) AS d{n}, sum(DISTINCT {f.name}) AS e{n}, "
        f"sum({f.name}) / count(*) AS q{n}"
        for n, f in enumerate(columns)
    ]
    with Lab(spark, f"SELECT g, {', '.join(calls)} FROM d GROUP BY g", {"d": relation}) as lab:
        sizes = dict(enumerate(_GROUP_ROWS))
        added = [_drawn_row(random_, k, g, types) for g, size in sizes.items() for k in range(1000 * g, 1000 * g + size)]
        rows = {row[0]: row for row in added}
        lab.step({"d": [(row, 1) for row in added]})
        lab.check()
        for _ in range(2):
            changes = []
            for k in random_.sample(sorted(rows), len(rows) // 3):
                old = rows.pop(k)
                changes.append((old, -1))
                if random_.random() < 0.7:
                    rows[k] = _drawn_row(random_, k, old[1], types)
                    changes.append((rows[k], 1))
            lab.step({"d": changes})
            lab.check()


def _drawn_row(random_: random.Random, k: int, g: int, types: list[tuple[int, int]]) -> Row:
    """A row whose groups' sums fit into Spark's types in any order."""
    values: list[Decimal | None] = []
    for precision, scale in types:
        # A sum has ten digits more than its values, a mean four more after the point, and both 38 at most.
        digits = min(precision, 34, 38 - 4 - max(0, scale - 34))
        few = random_.choice([1, 2, digits])
        values.append(None if random_.random() < 0.05 else _value(random_, min(few, digits), scale))
    return (k, g, *values)


#: Up to 14 digits variances are kept as sums of whole numbers; beyond, Spark computes them out of the group's rows.
_SQUARED = [(4, 2), (9, 9), (14, 0), (14, 7), (14, 14), (15, 0), (28, 3), (38, 10)]


def test_variances_of_drawn_values(spark: SparkSession) -> None:
    """Variances against exact arithmetic, over groups that change."""
    random_ = random.Random(seeds_of("variances")[0])
    columns = tuple(Field(f"x{n}", f"decimal({p},{s})") for n, (p, s) in enumerate(_SQUARED))
    relation = Relation("d", (Field("k", "int", False), *columns), ("k",))
    calls = ", ".join(f"var_pop({f.name}) AS v{n}, stddev_samp({f.name}) AS d{n}" for n, f in enumerate(columns))
    with Lab(spark, f"SELECT {calls} FROM d", {"d": relation}) as lab:
        rows: dict[int, Row] = {}
        for epoch in range(3):
            gone = random_.sample(sorted(rows), len(rows) // 2)
            changes = [(rows.pop(k), -1) for k in gone]
            new = {k: (k, *(_value(random_, p, s) for p, s in _SQUARED)) for k in range(100 * epoch, 100 * epoch + 40)}
            rows |= new
            lab.step({"d": [*changes, *((row, 1) for row in new.values())]})
            (view,) = lab.view().collect()
            for n in range(len(_SQUARED)):
                values = [Fraction(row[n + 1]) for row in rows.values()]
                assert view[f"v{n}"] == pytest.approx(float(pvariance(values)), rel=1e-12), _SQUARED[n]
                assert view[f"d{n}"] == pytest.approx(float(variance(values)) ** 0.5, rel=1e-12), _SQUARED[n]


def test_a_long_decimal_is_averaged_as_spark_averages_it(spark: SparkSession) -> None:
    """A mean that double rounding would get wrong."""
    relation = Relation("d", (Field("k", "int", False), Field("x", "int")), ("k",))
    with Lab(spark, "SELECT avg(CAST(x AS DECIMAL(28,0))) AS a FROM d", {"d": relation}) as lab:
        lab.step({"d": [((k, 99 if k == 0 else 0), 1) for k in range(713)]})
        lab.check()
