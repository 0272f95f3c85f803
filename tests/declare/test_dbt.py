"""Projects of dbt as declarations, without Spark."""

from __future__ import annotations

import json

import pytest

from relstate_dagster.assets.specs import project_assets
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.jobs.declare.checks import checks_of
from relstate_dagster.state_lib.errors import DeclarationError
from tests.dbt_projects import DbtProject


@pytest.fixture
def project(tmp_path):
    found = DbtProject(tmp_path / "shop", "name: shop\nvars: {days: 3, shop: {zone: UTC}}\n")
    found.source("raw", "orders", location="lake/orders", primary_key=["id"])
    return found


def _query(project, name):
    return load_project(project.write()).view(name).query


def _rendered(project, text):
    project.node("m", "{# is_incremental #}" + text, config={"materialized": "incremental"})
    return _query(project, "m")


# ------------------------------------------------------------------------------------------------------------ queries


@pytest.mark.parametrize(
    ("compiled", "query"),
    [
        ("select * from raw.orders", "select * from `raw__orders`"),
        ("select * from `RAW`.`Orders` as o, dev.a -- dev.a", "select * from `raw__orders` as o, `a` -- dev.a"),
        ("select dev.a from dev.a as dev", "select dev.a from `a` as dev"),
        ("select 'from dev.a' from dev.a", "select 'from dev.a' from `a`"),
        ("with a as (select * from dev.a) select * from a", "with a as (select * from `a`) select * from a"),
        (
            "with a as (select 1 as x), b as (select * from dev.a) select * from a, b",
            "WITH `__dbt__table__a` AS (SELECT * FROM `a`),\n"
            "a as (select 1 as x), b as (select * from `__dbt__table__a`) select * from a, b",
        ),
        (
            "select * from (with a as (select 1) select * from a join dev.a)",
            "WITH `__dbt__table__a` AS (SELECT * FROM `a`)\n"
            "select * from (with a as (select 1) select * from a join `__dbt__table__a`)",
        ),
    ],
)
def test_tables_of_dbt_are_replaced_where_they_are_read(project, compiled, query):
    project.node("a", "", "select 1 as x")
    project.node("m", "", compiled)
    assert _query(project, "m") == query


def test_tables_that_dbt_does_not_know_are_of_spark_catalog(project):
    project.node("m", "", "select * from prod.orders")
    sources = {source.name: source for source in load_project(project.write()).sources}
    assert sources["prod__orders"].table == "`prod`.`orders`"
    assert not sources["prod__orders"].may_be_here


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("select * from {{ source('raw', 'orders') }}", "select * from `raw__orders`"),
        ("{{ config(tags='x') }}select {{ var('days') }}, '{{ var('zone') }}', {{ var('n', 7) }}", "select 3, 'UTC', 7"),
        (
            "select '{{ config.get('materialized') }}'{% if is_incremental() %} from {{ this }}{% endif %}",
            "select 'incremental'",
        ),
        ("select {{ twice('x') }}", "select x + x"),
        ("select {{ tools.half(4) }}", "select 4 / 2"),
        ("select {{ dbt.joined('x') }}, {{ joined('y') }}", "select concat(x), concat(y)"),
        ("{% set names = columns() %}{% do names.append('c') %}select {{ names | join(', ') }}", "select a, b, c"),
    ],
)
def test_incremental_models_are_rendered_as_of_their_first_run(project, text, query):
    project.macro("twice", "{% macro twice(x) %}{{ tools.plus(x, x) }}{% endmacro %}")
    project.macro("columns", "{% macro columns() %}{{ return(['a', 'b']) }}{% endmacro %}")
    project.macro("half", "{% macro half(x) %}{{ adapter.dispatch('half', 'tools')(x) }}{% endmacro %}", "tools")
    project.macro("default__half", "{% macro default__half(x) %}{{ x }} div 2{% endmacro %}", "tools")
    project.macro("spark__half", "{% macro spark__half(x) %}{{ x }} / 2{% endmacro %}", "tools")
    project.macro("plus", "{% macro plus(x, y) %}{{ x }} + {{ y }}{% endmacro %}", "tools")
    project.macro("joined", "{% macro joined(x) %}{{ adapter.dispatch('joined', 'dbt')(x) }}{% endmacro %}", "dbt")
    project.macro("default__joined", "{% macro default__joined(x) %}{{ x }} || ''{% endmacro %}", "dbt")
    project.macro("spark__joined", "{% macro spark__joined(x) %}concat({{ x }}){% endmacro %}", "dbt_spark")
    assert _rendered(project, text) == query


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("select * from {{ this }}", "'this' is undefined"),
        ("select {{ unknown('x') }}", "'unknown' is undefined"),
        ("{% if execute %}select 1{% endif %}", "'execute' is undefined"),
        ("select {{ var('absent') }}", r"var\('absent'\) has no value"),
        ("select * from {{ ref('absent') }}", r"ref\('absent'\) is not in the manifest"),
        ("select {{ tools.absent() }}", "absent"),
        ("select {{ ''.__class__ }}", "__class__"),
        ("{% if %}", "Expected an expression"),
    ],
)
def test_models_that_need_dbt_are_refused_by_name(project, text, named):
    project.macro("plus", "{% macro plus(x, y) %}{{ x }} + {{ y }}{% endmacro %}", "tools")
    with pytest.raises(DeclarationError, match=f"models/m.sql: model m: its text cannot be rendered without dbt: .*{named}"):
        _rendered(project, text)


def test_a_macro_below_asks_whether_it_is_incremental(project):
    project.macro("is_incremental", "", "dbt")
    project.macro("since", "", depends_on=("macro.dbt.is_incremental",))
    project.macro(
        "newer", "{% macro newer() %}{% if is_incremental() %}no{% endif %}1{% endmacro %}", depends_on=("macro.shop.since",)
    )
    model = project.node("m", "select {{ newer() }}", "select compiled", config={"materialized": "incremental"})
    model["depends_on"]["macros"] = ["macro.shop.newer"]
    project.node("other", "select {{ unknown() }}", "select 2", config={"materialized": "incremental"})
    found = load_project(project.write())
    assert (found.view("m").query, found.view("other").query) == ("select 1", "select 2")
    assert found.remarks == ("dbt: is_incremental() is false, and its blocks are dropped, in m",)


def test_microbatches_are_rendered_without_their_filter(project):
    config = {"materialized": "incremental", "incremental_strategy": "microbatch"}
    project.node(
        "m", "select * from {{ source('raw', 'orders') }}", "select * from (select 1 where ts > '2020')", config=config
    )
    assert _query(project, "m") == "select * from `raw__orders`"


def test_ephemeral_models_are_plain_views(project):
    project.node("e", "select 1 as x", "select 1 as x", config={"materialized": "ephemeral"})
    project.node("m", "{# is_incremental #}select * from {{ ref('e') }}", config={"materialized": "incremental"})
    found = load_project(project.write())
    assert [view.name for view in found.plain_views] == ["e"]
    assert found.inlined("m") == {"e": "select 1 as x"}
    assert found.upstream("m") == ()


# ------------------------------------------------------------------------------------------------------ what is refused


def test_what_only_dbt_builds_is_refused_by_name_at_once(project):
    project.node("history", "select 1", kind="snapshot", config={"materialized": "snapshot"})
    project.node("scores", "def model(dbt, session): ...", language="python")
    project.node("stream", "select 1", config={"materialized": "streaming_table"})
    with pytest.raises(DeclarationError) as refused:
        load_project(project.write())
    for name in ("snapshot history", "Python model scores", "model stream (streaming_table)"):
        assert name in str(refused.value)


def test_what_dbt_builds_can_be_read_or_left_out(project):
    snapshot = {"materialized": "snapshot", "meta": {"relstate": {"location": "s3://lake/history"}}}
    project.node("history", "select 1", kind="snapshot", config=snapshot)
    project.node("scores", "", language="python", config={"meta": {"relstate": {"skip": True}}})
    project.node("m", "", "select * from dev.history")
    found = load_project(project.write())
    assert [view.name for view in found.views] == ["m"]
    assert ("history", "s3://lake/history") in {(source.name, source.location) for source in found.sources}
    project.node("over", "", "select * from dev.scores")
    with pytest.raises(DeclarationError, match=r"model over: it reads .*Python model scores, which is left to dbt"):
        load_project(project.write())


def test_a_manifest_is_needed_in_sparks_dialect(project):
    with pytest.raises(DeclarationError, match="run `dbt compile` there first"):
        load_project(project.folder)
    project.adapter = "duckdb"
    with pytest.raises(DeclarationError, match="its SQL is for duckdb"):
        load_project(project.write())
    (project.folder / "target" / "manifest.json").write_text(json.dumps([]))
    with pytest.raises(DeclarationError, match="is no manifest of dbt"):
        load_project(project.folder)


@pytest.mark.parametrize("settings", ["yes", {"path": "x"}, {"properties": ["x"]}, {"publish": "yes"}])
def test_settings_are_checked(project, settings):
    project.node("m", "", "select 1", config={"meta": {"relstate": settings}})
    with pytest.raises(DeclarationError, match=r"models/m.sql: model m: meta.relstate is a mapping"):
        load_project(project.write())


def test_names_of_other_letters_are_refused(project):
    project.node("m", "", "select 1", alias="m-1", relation_name="dev.`m-1`")
    with pytest.raises(DeclarationError, match=r"models/m.sql: model 'm-1' is not a plain identifier"):
        load_project(project.write())


# ----------------------------------------------------------------------------------------------------- names and places


def test_sources_have_their_location_and_key(project):
    project.source("raw", "items", location_root="/lake/raw")
    project.source("raw", "stores")
    project.node("colours", "", kind="seed", config={"materialized": "seed", "location_root": "s3://lake"})
    project.node("m", "", "select 1")
    found = {source.name: source for source in load_project(project.write()).sources}
    places = {name: source.location for name, source in found.items()}
    assert places == {
        "raw__orders": str(project.folder / "lake" / "orders"),
        "raw__items": "/lake/raw/items",
        "raw__stores": None,
        "colours": "s3://lake/colours",
    }
    assert found["raw__orders"].primary_key == ("id",)
    # Those without a place are tables of Spark's catalog, unless the warehouse has them.
    assert {name: source.table for name, source in found.items() if source.table} == {"raw__stores": "`raw`.`stores`"}
    assert all(source.may_be_here for source in found.values())


def test_a_source_over_a_model_or_a_seed_is_one_table(project):
    project.source("dev", "a")
    project.source("dev", "colours")
    project.node("a", "", "select 1 as x")
    project.node("colours", "", kind="seed", config={"materialized": "seed"})
    project.node("m", "", "select * from dev.a, dev.colours")
    found = load_project(project.write())
    assert {source.name for source in found.sources} == {"raw__orders", "dev__colours"}
    assert found.reads["m"] == ("a", "dev__colours")


def test_a_model_may_be_called_as_a_source_and_its_table(project):
    project.source("raw", "orders")
    project.source("raw", "items")
    project.node("Raw__Orders", "", "select * from raw.orders join raw.items using (id)")
    project.node("m", "", "select * from dev.Raw__Orders")
    found = load_project(project.write())
    assert {source.name for source in found.sources} == {"source__raw__orders", "raw__items"}
    assert found.reads["Raw__Orders"] == ("source__raw__orders", "raw__items")
    assert found.reads["m"] == ("Raw__Orders",)


def test_one_alias_in_two_schemas(project):
    for name, schema in (("a", "dev"), ("b", "mart")):
        project.node(name, "", "select 1 as x", alias="sales", schema=schema, relation_name=f"{schema}.sales")
    project.node("m", "", "select * from mart.sales")
    found = load_project(project.write())
    assert {view.name for view in found.views} == {"dev__sales", "mart__sales", "m"}
    assert found.reads["m"] == ("mart__sales",)


def test_a_model_is_published_by_the_name_that_dbt_gives_it(project):
    published = {"meta": {"relstate": {"publish": True}}}
    project.node("a", "", "select 1 as x", alias="sales", relation_name="`dev`.`Sales`", config=published)
    project.node("b", "", "select 1 as x", relation_name="lake.mart.b", config=published)
    named = {"meta": {"relstate": {"publish": True, "properties": {"publish.table": "dev.other"}}}}
    project.node("c", "", "select 1 as x", config=named)
    project.node("d", "", "select 1 as x", config={"meta": {"relstate": {"publish": False}}})
    found = {view.name: view.properties.get("publish.table") for view in load_project(project.write()).views}
    assert found == {"sales": "`dev`.`sales`", "b": "`lake`.`mart`.`b`", "c": "dev.other", "d": None}


# ----------------------------------------------------------------------------------------------------- Dagster and tests


def test_keys_and_attributes_are_those_of_dagster_dbt(project):
    project.groups["group.shop.finance"] = {"owner": {"email": "ann@shop.example", "name": "Ann"}}
    project.node(
        "sales",
        "",
        "select * from raw.orders",
        tags=["daily", "not a tag"],
        description="Sales.",
        config={"schema": "mart", "group": "finance", "meta": {"relstate": {"properties": {"refresh.policy": "full"}}}},
    )
    project.node("v", "", "select 1", alias="v_v2", version=2)
    project.node("keyed", "", "select 1", config={"meta": {"dagster": {"asset_key": ["a", "b"], "group": "g"}}})
    project.node("plain", "", "select 1")
    found = load_project(project.write())
    assets = project_assets(found)
    keys = {name: key.to_user_string() for name, key in assets.keys.items()}
    assert keys == {"raw__orders": "raw/orders", "sales": "mart/sales", "v_v2": "v_v2", "keyed": "a/b", "plain": "plain"}
    sales = assets.views["sales"]
    assert (sales.group_name, sales.owners, sales.description) == ("finance", ["ann@shop.example"], "Sales.")
    assert {key: text for key, text in sales.tags.items() if not key.startswith("dagster/")} == {"daily": ""}
    assert sales.kinds == {"dbt", "spark", "delta"}
    assert found.view("sales").refresh_policy == "full"


def test_tests_are_checks(project):
    project.node("customers", "", "select 1 as id")
    project.node("m", "", "select * from raw.orders")
    project.test("m", "not_null", "id", where="id > 3")
    project.test("m", "unique", "id", severity="warn")
    project.test("m", "accepted_values", "status", {"values": ["new", "it's"]})
    project.test("m", "accepted_values", "size", {"arguments": {"values": [1, 2], "quote": False}})
    project.test("m", "relationships", "customer", {"to": "ref('customers')", "field": "id"})
    project.test("m", "relationships", "order", {"to": "source('raw', 'orders')", "field": "id"})
    project.test("m", "dbt_utils.expression_is_true", None, {"expression": "a = b"})
    project.test("m", "dbt_utils.expression_is_true", "a", {"expression": "> 0"}, where="b")
    singular = "select *, 1 as n from dev.m -- where\nwhere total < 0 or total is null -- bad\n"
    project.node("no_debts", "", singular, kind="test", config={"materialized": "test"})
    found = load_project(project.write())
    checks = {check.name: check for check in checks_of(found.view("m").properties, "m")}
    assert {name: check.described for name, check in checks.items()} == {
        "not_null_m_id": "expect: NOT coalesce((id > 3), false) OR `id` IS NOT NULL",
        "unique_m_id": "unique: `id`",
        "accepted_values_m_status": "accepted: `status` IN ('new', 'it\\'s')",
        "accepted_values_m_size": "accepted: `size` IN (1, 2)",
        "relationships_m_customer": "references: `customer` IN `customers`(`id`)",
        "relationships_m_order": "references: `order` IN `raw__orders`(`id`)",
        "dbt_utils_expression_is_true_m_None": "expect: coalesce( a = b, true)",
        "dbt_utils_expression_is_true_m_a": "expect: NOT coalesce((b), false) OR coalesce(`a` > 0, true)",
        "no_debts": "expect: NOT coalesce(total < 0 or total is null, false)",
    }
    assert checks["unique_m_id"].severity == "warn"
    assert not found.remarks


def test_other_tests_are_left_to_dbt_and_named(project):
    project.node("m", "", "select * from raw.orders")
    project.test("m", "unique", "lower(id)")
    project.test("m", "not_null", "x", error_if="> 10")
    project.test("m", "sometimes", "id")
    singular = {
        "groups": "select x from dev.m where x > 1 group by x",
        "two": "select 1 from dev.m, dev.m as n where y > 1",
        "nested": "select 1 from dev.m where x in (select 1)",
        "named": "select 1 from dev.m as n where n.x > 1",
        "sums": "select sum(x) from dev.m where x > 1",
        "all": "select 1 from dev.m",
        "source": "select 1 from raw.orders where id < 0",
        "many": "select 1 from dev.m where x > 1 limit 5",
    }
    for name, text in singular.items():
        project.node(name, "", text, kind="test", config={"materialized": "test"})
    (remark,) = load_project(project.write()).remarks
    left = ["unique_m_lower(id)", "not_null_m_x", "sometimes_m_id", *singular]
    assert remark == f"dbt: tests are left to dbt: {', '.join(left)}"
