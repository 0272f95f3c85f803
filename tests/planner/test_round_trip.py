"""Each expression's text, read again by Spark, is the same expression; what is not is noticed while a view is planned."""

from __future__ import annotations

import os

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.nodes import Aggregate, Project, Values, Window, walk
from relstate_dagster.jobs.planner.catalyst import Catalyst
from relstate_dagster.jobs.planner.expression_facts import NotIncremental
from relstate_dagster.jobs.planner.expressions import ExpressionWriter
from relstate_dagster.jobs.planner.planning import lowered, plan_view
from relstate_dagster.jobs.planner.round_trip import check_round_trips
from tests.capabilities import accepts, collects_nulls, need
from tests.operators.histories import Source, epochs_of
from tests.operators.lab import RELATIONS, Lab, decimal
from tests.planner.examples import expressions, functions

#: Functions whose examples need what is not there: Avro, Protobuf, the TIME type.
_NOT_ANALYSED = frozenset(
    {"from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf", "to_time", "try_to_time", "make_time"}
)
#: Functions whose text Spark does not read back as the same: views that call them are recomputed in full, or refused.
_NO_TEXT = frozenset(
    {
        "collations", "sql_keywords", "variant_explode", "variant_explode_outer",  # generators that only FROM takes
        "try_make_timestamp",  # with a time zone it has no text of its own
        "try_reflect", "reflect", "java_method", "aes_encrypt",
    }
)  # fmt: skip


def test_the_examples_of_all_functions_survive_as_text(spark: SparkSession) -> None:
    """One example a function over columns where it takes them; all of them with ``RELSTATE_ALL_EXAMPLES=1``."""
    catalyst = Catalyst(spark, {}, {})
    everything = bool(os.environ.get("RELSTATE_ALL_EXAMPLES"))
    lost, tried = [], 0
    for function in functions(spark):
        for query in function.queries if everything else function.queries[:1]:
            if "TIME'" in query.upper().replace("TIME '", "TIME'") or function.name in _NOT_ANALYSED or "time_from" in query:
                continue
            if function.name.startswith("st_") and not accepts(spark, query):
                continue  # Spark 4.1 has them, and refuses to run them
            for expression, names in expressions(catalyst, query, everything=everything):
                writer = ExpressionWriter(catalyst)
                try:
                    writer.sql(expression, names)
                    check_round_trips(catalyst, writer.written)
                    tried += 1
                except NotIncremental as refusal:
                    if refusal.code == "no-text" and function.name not in _NO_TEXT:
                        lost.append(f"{query}: {refusal}")
    assert lost == []
    assert tried > 400


@pytest.mark.parametrize(
    "expression",
    [
        "-0.0D", "CAST('NaN' AS DOUBLE)", "CAST('-Infinity' AS FLOAT)", "1.10", "1e-7BD",
        "99999999999999999999999999999999999999",
        "X''", "X'00FF'", "CAST(X'80' AS STRING)", r"'a\'b\\c\n\u2028'", r"r'\d\\'", "'😀'", "array()", "map()", "struct()",
        "array(1L, NULL)", "map('a', array(1.5))", "named_struct('a b', 1, 'c`d', X'01')", "sequence(1, 3)",
        "INTERVAL '1-2' YEAR TO MONTH", "INTERVAL '-1 02:03:04.5' DAY TO SECOND", "make_interval(1, 2, 3, 4, 5, 6, 7.5)",
        "DATE '-0044-03-15'", "TIMESTAMP '1900-01-01 00:00:00.000001'", "TIMESTAMP_NTZ '9999-12-31 23:59:59'",
        "'a' COLLATE UTF8_LCASE", "CAST(NULL AS STRUCT<a: INT>)", "(s COLLATE UNICODE_CI) = 'A'", "s LIKE 'a!%' ESCAPE '!'",
        "s ILIKE '%A!_' ESCAPE '!'", "try_cast(s AS INT)", "try_add(k, g)", "k + g", "try_divide(k, g)", "v / 3",
        "CAST(v AS TINYINT)",
        "from_json(s, 'a INT, `b c` STRING', map('mode', 'FAILFAST'))",
        "to_json(struct(k, s), map('ignoreNullFields', 'false'))",
        "transform(array(k, g), (x, i) -> x + i + k)", "aggregate(array(k), 0, (a, x) -> a + x, a -> a * 2)",
        "filter(array(array(k)), x -> exists(x, y -> y > k))", "array_sort(array(k, g), (a, b) -> b - a)",
        "struct(k, s AS `odd name`)", "named_struct('x', k).x", "mask(s, lowerChar => 'q')",
        "date_part('SECONDS', timestamp_seconds(k))",
        "extract(DAYS FROM make_dt_interval(k))", "v BETWEEN 1 AND k", "try_variant_get(parse_json(s), '$.a', 'int')",
        "from_utc_timestamp(timestamp_seconds(k), 'Asia/Tokyo')",
        "try_to_number(s, '999')", "round(v, 1)", "bround(v, 1)", "CAST(s AS DECIMAL(4,1))",
        "element_at(array(k), 1)", "array(k)[0]", "(array(struct(k AS a))).a",
        "to_json(named_struct('x y', s, 'z', array('a')))",
    ],
)  # fmt: skip
def test_an_expression_is_its_text(spark: SparkSession, expression: str) -> None:
    plan = lowered(Catalyst(spark, RELATIONS, {}), RELATIONS, f"SELECT {expression} AS x FROM t")
    assert any(isinstance(node, Project) for node in walk(plan))


@pytest.mark.parametrize(
    "value",
    [
        "TIMESTAMP '1970-01-01 00:00:01'",
        "CAST(1.5 AS FLOAT)",
        "sequence(1, 3)",
        "INTERVAL '1' SECOND",
        "1L",
        "map(1L, X'00')",
        "-0.0D",
    ],
)
def test_constant_rows_keep_their_values(spark: SparkSession, value: str) -> None:
    plan = lowered(Catalyst(spark, {}, {}), {}, f"SELECT * FROM VALUES ({value}, 1), (NULL, 2) AS v(x, n)")
    (node,) = (n for n in walk(plan) if isinstance(n, Values))
    assert spark.sql(f"SELECT {node.rows[0][0]}").collect() == spark.sql(f"SELECT {value}").collect()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("first(s) IGNORE NULLS", "first(s) IGNORE NULLS"),
        ("last_value(s)", "last_value(s)"),
        ("any_value(s) IGNORE NULLS", "first(s) IGNORE NULLS"),
        ("collect_list(s) RESPECT NULLS", "collect_list(s) RESPECT NULLS"),
        ("mode() WITHIN GROUP (ORDER BY k DESC)", "mode() WITHIN GROUP (ORDER BY `k` DESC)"),
        ("mode(k)", "mode(`k`)"),
        ("listagg(DISTINCT s, ';') WITHIN GROUP (ORDER BY s DESC NULLS FIRST)",) * 2,
        ("percentile_disc(0.25) WITHIN GROUP (ORDER BY k DESC)",) * 2,
        ("try_sum(k) FILTER (WHERE k > 1)", None),
        ("approx_percentile(v, array(0.5, 0.1), 99)", None),
        ("max_by(s, k) FILTER (WHERE g = 1)", None),
        ("count_min_sketch(k, 0.5D, 0.5D, 1)", None),
        ("grouping_id()", None),
    ],
)
def test_an_aggregate_call_keeps_its_flags(spark: SparkSession, call: str, text: str | None) -> None:
    if "RESPECT" in call and not collects_nulls(spark):
        text = "collect_list(s)"
    group = "CUBE (g)" if call.startswith("grouping") else "g"
    plan = plan_view(spark, f"SELECT g, {call} AS x FROM t GROUP BY {group}", RELATIONS)
    calls = [c.sql for node in walk(plan) if isinstance(node, Aggregate) for c in node.calls]
    assert text is None or len(calls) == 1
    if text is not None and not text.startswith(("listagg", "percentile")):
        assert calls == [text]


@pytest.mark.parametrize(
    "call",
    [
        "first_value(s) IGNORE NULLS OVER (ORDER BY k)",
        "last_value(s) IGNORE NULLS OVER (PARTITION BY g ORDER BY k DESC NULLS LAST ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING)",
        "nth_value(s, 2) IGNORE NULLS OVER (ORDER BY k)",
        "lead(s, 2, 'none') IGNORE NULLS OVER (ORDER BY k)",
        "lag(s) IGNORE NULLS OVER (ORDER BY k)",
        "sum(k) OVER (ORDER BY timestamp_seconds(k) RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND INTERVAL 2 DAYS FOLLOWING)",
        "collect_list(s) FILTER (WHERE k > 1) OVER (ORDER BY k ROWS UNBOUNDED PRECEDING)",
        "ntile(3) OVER (ORDER BY k)",
        "percent_rank() OVER (ORDER BY g NULLS LAST, k DESC)",
        "any_value(s) IGNORE NULLS OVER (ORDER BY k ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    ],
)
def test_a_window_call_keeps_its_flags(spark: SparkSession, call: str) -> None:
    if "FILTER" in call:
        need(spark, "SELECT count(*) FILTER (WHERE id > 1) OVER () FROM range(3)")
    plan = plan_view(spark, f"SELECT k, {call} AS x FROM t", RELATIONS)
    (node,) = (n for n in walk(plan) if isinstance(n, Window))
    assert ("IGNORE NULLS" in node.expressions[0].sql.upper()) == ("IGNORE NULLS" in call)


_NULLS = [
    [("t", 1, (0, "a", decimal(300))), ("t", 2, (0, None, decimal(200))), ("t", 3, (0, None, None))],
    [("t", 2, (0, "b", None)), ("t", 4, (1, None, None)), ("t", 0, (1, "z", decimal(1)))],
    [("t", 1, None), ("t", 4, (0, "y", decimal(5)))],
]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, last_value(v) IGNORE NULLS OVER (ORDER BY k) AS l, last_value(v) OVER (ORDER BY k) AS r, "
        "lag(s) IGNORE NULLS OVER (PARTITION BY g ORDER BY k) AS p, nth_value(s, 2) IGNORE NULLS OVER (ORDER BY k) AS n FROM t",
        "SELECT g, mode() WITHIN GROUP (ORDER BY k DESC) AS hi, mode() WITHIN GROUP (ORDER BY k) AS lo, "
        "array_sort(collect_list(s) RESPECT NULLS) AS a, listagg(s, ';') WITHIN GROUP (ORDER BY k DESC) AS l FROM t GROUP BY g",
        "SELECT k FROM t WHERE s ILIKE '%A' ESCAPE '!' OR s LIKE 'z!%' ESCAPE '!'",
    ],
)
def test_views_with_flags_equal_their_queries(spark: SparkSession, query: str) -> None:
    with Lab(spark, query) as lab:
        for changes in epochs_of(_NULLS, Source()):
            lab.step(changes)
            lab.check()


def test_an_argument_that_is_an_aggregate_keeps_its_function(spark: SparkSession) -> None:
    query = "SELECT g, try_divide(round(sum(v), 1), count(s)) AS x, try_add(max(k), 2147483647) AS y FROM t GROUP BY g"
    with Lab(spark, query) as lab:
        for changes in epochs_of(_NULLS, Source()):
            lab.step(changes)
            lab.check()


def test_a_text_that_is_another_expression_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relstate_dagster.jobs.planner.expressions.with_null_option", lambda text, _function: text)
    with pytest.raises(NotIncremental, match="another expression") as refused:
        plan_view(spark, "SELECT k, last_value(s) IGNORE NULLS OVER (ORDER BY k) AS x FROM t", RELATIONS)
    assert refused.value.code == "no-text"
