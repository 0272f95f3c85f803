"""Steps that are analyzed together give what PySpark gives one by one."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.state_lib.lazy_frame import LazyFrame, first_of_each_task, lazy, select, set_analyzer, where
from relstate_dagster.state_lib.sql_text import quoted
from tests.state_lib.test_columns import PARTS_OF_NAMES

_COMPARED = (
    *(
        "{} != 0",
        "{} > 1",
        "NOT {} <= 2",
        "{} IS NOT NULL",
        "{} = 1 OR {} >= 3L",
        "{} <=> NULL",
        "{} < 2.5",
        "{} = '1'",
        "-{} < 0",
    ),
    *("{} BETWEEN 1 AND 2", "{} IN (1, 2)", "{} + 1 > 2"),
)


def _rows(spark: SparkSession, drawn: random.Random) -> DataFrame:
    names: dict[str, None] = dict.fromkeys(("plain", "_under"))
    while len(names) < 7:
        name = "".join(drawn.choices(PARTS_OF_NAMES, k=drawn.randint(1, 3)))
        if name.lower() not in {known.lower() for known in names}:
            names[name] = None
    types = ("bigint", "int", "smallint", "boolean", "string", "decimal(6, 2)", "double")
    values = ("id", "id", "id", "id % 2 = 0", "id", "id", "id")
    columns = (
        f"CAST(IF(id = {n}, NULL, {value}) AS {data_type}) AS {quoted(name)}"
        for n, (name, value, data_type) in enumerate(zip(names, values, types, strict=True))
    )
    return spark.range(6).selectExpr(*columns)


def _step(drawn: random.Random, frame: DataFrame, *, sensitive: bool) -> tuple[str, list[str]]:
    """A method and its arguments; some of them no frame can answer."""
    fields = frame.schema.fields
    named = [quoted(f.name) for f in fields]
    match drawn.randrange(4) if fields else 3:
        case 0:
            compared = [quoted(f.name) for f in fields if isinstance(f.dataType, T.NumericType)]
            flags = [quoted(f.name) for f in fields if isinstance(f.dataType, T.BooleanType)]
            if flags and drawn.random() < 0.4:
                return "where", [drawn.choice(["{}", "NOT {}", "{} = true", "{} <=> false"]).format(drawn.choice(flags))]
            column = drawn.choice(compared or ["1"])
            return "where", [drawn.choice(_COMPARED).replace("{}", column)]
        case 1:
            name = drawn.choice(fields).name
            # PySpark drops names of other cases in sessions that tell them apart, too.
            return "drop", [drawn.choice([name, "missing", name if sensitive else name.upper()])]
        case 2:
            return "select", drawn.sample(named, drawn.randint(1, len(named)))
        case _:
            if not named:
                return "selectExpr", ["*", "1 AS one"]
            texts = drawn.choices(named, k=drawn.randint(1, len(named)))
            renamed = [f"{text} AS {quoted(f'{n}{drawn.choice(PARTS_OF_NAMES)}')}" for n, text in enumerate(texts)]
            renamed.append(f"try_cast({texts[0]} AS STRING) AS tried")
            of_type = drawn.choice(fields)
            renamed.append(f"CAST({quoted(of_type.name)} AS {of_type.dataType.simpleString()}) AS `of type`")
            same = [f"{text} AS {text}" for text in drawn.sample(named, min(2, len(named)))]
            other = ["*", "true", "current_date() IS NULL AS d", "length('a,b') AS l", "struct(1 AS x) AS s", named[0].upper()]
            other += ["CAST(NULL AS decimal(9,2)) AS z"]
            return "selectExpr", drawn.choice([renamed, same, [*renamed, *drawn.sample(other, 2)], ["*", "7 AS added"]])


def _problem(frame: DataFrame, method: str, arguments: list[str]) -> str | None:
    """What Spark says against a step."""
    try:
        _ = getattr(frame, method)(*arguments).schema
    except AnalysisException as error:
        return error.getCondition()
    return None


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("sensitive", ["false", "true"])
def test_drawn_steps(spark: SparkSession, seed: int, sensitive: str) -> None:
    drawn = random.Random(seed)
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", sensitive)
    for _ in range(6):
        theirs = _rows(session, drawn)
        ours = lazy(theirs)
        assert isinstance(ours, LazyFrame)
        taken: list[tuple[str, list[str]]] = []
        for _ in range(drawn.randint(1, 6)):
            method, arguments = _step(drawn, theirs, sensitive=sensitive == "true")
            problem = _problem(theirs, method, arguments)
            assert _problem(ours, method, arguments) == problem, [*taken, (method, arguments)]
            if problem is not None:
                break
            theirs, ours = (getattr(frame, method)(*arguments) for frame in (theirs, ours))
            taken.append((method, arguments))
            if drawn.random() < 0.3:
                assert ours.schema == theirs.schema, taken
        assert ours.schema == theirs.schema, taken
        assert ours.collect() == theirs.collect()


def test_what_is_made_of_a_frame_waits_as_well(spark: SparkSession) -> None:
    rows = lazy(spark.range(4).selectExpr("id", "id % 2 AS g"))
    made = (
        rows.withColumn("h", F.col("g") + 1)
        .withColumnRenamed("h", "i")
        .union(rows.selectExpr("id", "g", "1L AS i"))
        .groupBy("g")
        .agg(F.sum("i").alias("n"))
        .where("n != 0")
        .alias("a")
        .join(rows.select("g").distinct().alias("b"), F.expr("a.g = b.g"))
        .select("a.g", F.col("n"))
    )
    assert isinstance(made, LazyFrame)
    assert sorted(map(tuple, made.collect())) == [(0, 4), (1, 6)]


def test_first_rows_of_each_task(spark: SparkSession) -> None:
    rows = spark.range(0, 20, 1, 4)
    for frame in (rows, lazy(rows)):
        assert [row.id for row in first_of_each_task(frame, 1).collect()] == [0, 1, 5, 6, 10, 11, 15, 16]


def test_threads_that_ask_at_once(spark: SparkSession) -> None:
    """A frame that several threads analyze is one of equal ones, whoever comes first."""
    for n in range(5):
        before = lazy(spark.range(3)).selectExpr("id", f"id + {n} AS v")
        frames = [before, before.where("v > 0"), before.where("v > 0").select("v"), before]
        with ThreadPoolExecutor(4) as pool:
            counts = list(pool.map(lambda frame: len(frame.collect()), frames))
        over = 3 if n else 2
        assert counts == [3, over, over, 3]


def test_characters_that_separate_steps(spark: SparkSession) -> None:
    for mark in ("\x1d", "\x1e", "\x1f"):
        frame = lazy(spark.range(1)).selectExpr(f"'a{mark}b' AS {quoted(f'x{mark}y')}")
        assert where(frame, f"{quoted(f'x{mark}y')} = 'a{mark}b'").collect() == [(f"a{mark}b",)]


def test_without_a_jvm_for_it_each_step_is_pysparks(spark: SparkSession) -> None:
    analyze = set_analyzer(None)
    try:
        frame = lazy(spark.range(3))
        assert not isinstance(frame, LazyFrame)
        assert not isinstance(select(where(frame, "id > 0"), ["id AS n"]), LazyFrame)
        assert first_of_each_task(select(frame, ["id AS n"]), 5).collect() == [(0,), (1,), (2,)]
    finally:
        set_analyzer(analyze)


def test_char_columns_and_comments_are_kept(spark: SparkSession, tmp_path) -> None:
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/t` (c CHAR(3), v VARCHAR(4) COMMENT 'said', e CHAR(5)) USING delta")
    spark.sql(f"INSERT INTO delta.`{tmp_path}/t` VALUES ('a', 'b', 'a')")
    theirs = spark.read.format("delta").load(f"{tmp_path}/t")
    for steps in (["c", "V"], ["v AS v", "c AS d"], ["*"], ["CAST(c AS string) AS c"]):
        ours = lazy(theirs).selectExpr(*steps)
        assert ours.schema == theirs.selectExpr(*steps).schema
        assert [f.metadata for f in ours.schema.fields] == [f.metadata for f in theirs.selectExpr(*steps).schema.fields]
        assert ours.collect() == theirs.selectExpr(*steps).collect()
    for condition in ("c = 'a'", "c = e", "NOT c <=> e"):
        assert lazy(theirs).where(condition).count() == theirs.where(condition).count(), condition


@pytest.mark.parametrize("step", ["{}", "{} AS m", "CAST({} AS bigint) AS m"])
@pytest.mark.parametrize("name", ["missing", "x"])
@pytest.mark.parametrize("before", ["*", "length(z) AS x, z AS x"])
def test_names_that_mean_no_column_or_two(spark: SparkSession, before: str, name: str, step: str) -> None:
    theirs = spark.range(2).select(F.col("id").alias("x"), F.col("id").alias("x"), F.col("id").alias("z"))
    problems = [
        _problem(frame.selectExpr(*before.split(", ")), "selectExpr", [step.format(name)]) for frame in (theirs, lazy(theirs))
    ]
    assert problems[0] == problems[1] is not None


@pytest.mark.parametrize("meant", ["TIMESTAMP_LTZ", "TIMESTAMP_NTZ"])
def test_a_cast_to_the_type_that_the_session_means(spark: SparkSession, meant: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.timestampType", meant)
    theirs = session.range(1).selectExpr("timestamp_micros(id) AS t", "CAST(timestamp_micros(id) AS timestamp_ntz) AS n")
    steps = ["CAST(t AS timestamp) AS t", "CAST(n AS timestamp) AS n", "CAST(n AS timestamp_ntz) AS m"]
    assert lazy(theirs).selectExpr(*steps).schema == theirs.selectExpr(*steps).schema
