"""Projects in somebody else's code location: prefixes, names, sources of the team's own, and what Dagster refuses. No Spark."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest
from dagster import (
    AssetKey,
    AssetSpec,
    AutomationCondition,
    DagsterInstance,
    Definitions,
    EnvVar,
    asset,
    build_sensor_context,
    in_process_executor,
    multiprocess_executor,
)

import relstate_dagster
from relstate_dagster import RelstateTranslator, WarehouseResource, build_definitions
from relstate_dagster.assets.specs import project_assets
from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.state_lib.errors import DeclarationError

SQL = """
CREATE TABLE orders (id INT, customer STRING, cents BIGINT, PRIMARY KEY (id));
CREATE MATERIALIZED VIEW sales AS SELECT customer, sum(cents) AS cents FROM orders JOIN rates USING (id) GROUP BY customer;
CREATE MATERIALIZED VIEW top AS SELECT max(cents) AS most FROM sales;
"""


def declared(sql):
    return build_project(parse_text(sql, "p.sql"))


def view(properties="", name="v", query="SELECT a.x FROM a"):
    listed = f"TBLPROPERTIES ({properties}) " if properties else ""
    return declared(f"CREATE MATERIALIZED VIEW {name} {listed}AS {query};")


def spec(properties="", **options):
    return project_assets(view(properties), **options).views["v"]


def keys_of(definitions):
    graph = definitions.resolve_asset_graph()
    return {key.to_user_string() for key in graph.get_all_asset_keys()}


def parents(definitions, key):
    return {key.to_user_string() for key in definitions.resolve_asset_graph().get(AssetKey(key)).parent_keys}


# ------------------------------------------------------------------------------------------------------- one location


def test_projects_of_the_same_names_are_merged_under_prefixes(tmp_path):
    @asset
    def sales():
        """The team's own, without a prefix."""

    east = build_definitions(declared(SQL), warehouse=tmp_path / "e", key_prefix="east", resource_key="east")
    west = build_definitions(declared(SQL), warehouse=tmp_path / "w", key_prefix=["eu", "west-1"], resource_key="west")
    merged = Definitions.merge(Definitions(assets=[sales], executor=multiprocess_executor), east, west)
    Definitions.validate_loadable(merged)
    assert keys_of(merged) == {
        *(f"{prefix}/{name}" for prefix in ("east", "eu/west-1") for name in ("orders", "rates", "sales", "top")),
        "sales",
    }
    assert parents(merged, ["east", "sales"]) == {"east/orders", "east/rates"}
    repository = merged.get_repository_def()
    assert {job.name for job in repository.get_all_jobs()} >= {"east_refresh_views", "eu_west_1_refresh_views"}
    assert {sensor.name for sensor in repository.sensor_defs} == {"east_delta_versions", "eu_west_1_delta_versions"}
    assert repository.get_job("east_refresh_views").executor_def is in_process_executor
    lineage = repository.asset_graph.get(AssetKey(["east", "sales"])).metadata["dagster/column_lineage"].deps_by_column
    assert {dep.asset_key.to_user_string() for dep in lineage["customer"]} <= {"east/orders", "east/rates"}
    checks = {
        key.asset_key.to_user_string()
        for key in repository.get_job("east_verify_views").asset_layer.asset_graph.asset_check_keys
    }
    assert checks == {"east/sales", "east/top"}


def test_two_projects_in_one_warehouse_share_its_resource(tmp_path):
    home = WarehouseResource(path=str(tmp_path))
    one = build_definitions(declared(SQL), warehouse=home, name="one")
    two = build_definitions(view(name="w", query="SELECT b.x FROM b"), warehouse=home, name="two")
    assert Definitions.merge(one, two).get_repository_def().has_job("two_refresh_views")


def test_the_warehouse_may_be_a_resource_of_the_location(tmp_path):
    bare = build_definitions(declared(SQL))
    assert not bare.resources
    with_resource = Definitions(resources={"warehouse": WarehouseResource(path=str(tmp_path))})
    Definitions.validate_loadable(Definitions.merge(bare, with_resource))


def test_the_sensor_asks_the_resource_for_its_warehouse(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_WAREHOUSE", str(tmp_path))
    home = WarehouseResource(path=EnvVar("SHOP_WAREHOUSE"))
    repository = build_definitions(declared(SQL), warehouse=home, resource_key="lake", key_prefix="shop").get_repository_def()
    with (
        DagsterInstance.ephemeral() as instance,
        build_sensor_context(
            instance=instance, repository_def=repository, resources=repository.get_top_level_resources()
        ) as context,
    ):
        (request,) = repository.get_sensor_def("shop_delta_versions").evaluate_tick(context).run_requests
    assert request.tags["relstate/behind"] == "sales,top"


def test_an_asset_of_the_team_is_the_source():
    @asset(key=["raw", "orders"])
    def orders():
        """Writes the Delta table."""

    @asset
    def rates():
        """Writes the other one."""

    for named in (orders, AssetSpec(["raw", "orders"]), ["raw", "orders"], AssetKey(["raw", "orders"])):
        embedded = build_definitions(declared(SQL), key_prefix="shop", sources={"ORDERS": named, "rates": rates})
        merged = Definitions.merge(Definitions(assets=[orders, rates], resources={"warehouse": object()}), embedded)
        assert keys_of(merged) == {"raw/orders", "rates", "shop/sales", "shop/top"}
        assert parents(merged, ["shop", "sales"]) == {"raw/orders", "rates"}


def test_sources_that_nobody_names_are_known_by_their_keys_alone():
    @asset
    def orders():
        """Writes the Delta table."""

    embedded = build_definitions(declared(SQL), key_prefix="shop", define_sources=False)
    merged = Definitions.merge(Definitions(assets=[orders], resources={"warehouse": object()}), embedded)
    assert keys_of(merged) == {"orders", "rates", "shop/sales", "shop/top"}
    assert parents(merged, ["shop", "sales"]) == {"orders", "rates"}


def test_a_source_that_is_not_there_is_named():
    with pytest.raises(DeclarationError, match=r"no source 'orderz'; there are: orders, rates"):
        build_definitions(declared(SQL), sources={"orderz": "orders"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key_prefix": "a b"}, r"source a: the asset key 'a b/a' has the part 'a b'"),
        ({"key_prefix": ["ü"]}, r"'ü'; Dagster takes ASCII"),
        ({"key_prefix": ["a/b"]}, r"has the part 'a/b'"),
        ({"name": "a b"}, r"name = 'a b': Dagster takes ASCII"),
        ({"sources": {"a": "v"}}, r"view p.sql:1: v: its asset key 'v' is for Dagster the same name as that of a, 'v'"),
        ({"sources": {"a": ["x", ""]}}, r"the part ''"),
    ],
)
def test_keys_and_names_that_dagster_cannot_have(options, said):
    with pytest.raises(DeclarationError, match=said):
        build_definitions(view(), **options)


def test_a_view_of_a_reserved_name_needs_a_prefix():
    project = view(name="type")
    with pytest.raises(DeclarationError, match=r"view p.sql:1: type: Dagster reserves the name 'type': give the project a key"):
        build_definitions(project)
    Definitions.validate_loadable(build_definitions(project, key_prefix="shop", warehouse="w"))


# --------------------------------------------------------------------------------------------------------- properties


def test_properties_reach_the_spec():
    found = spec(
        "'dagster.group' = 'sales', 'dagster.owners' = 'team:shop, a@b.com', 'dagster.tags' = 'tier=gold', "
        "'dagster.kinds' = 'iceberg, sql', 'dagster.automation' = 'eager', 'dagster.freshness' = '1 day, warn 12 Hours'"
    )
    assert (found.group_name, list(found.owners)) == ("sales", ["team:shop", "a@b.com"])
    assert found.kinds == {"iceberg", "sql"}
    assert found.tags["tier"] == "gold"
    assert found.automation_condition == AutomationCondition.eager()
    policy = found.freshness_policy
    assert policy.fail_window.to_timedelta() == timedelta(days=1)
    assert policy.warn_window.to_timedelta() == timedelta(hours=12)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("on_missing", AutomationCondition.on_missing()),
        ("on_cron:0 6 * * *", AutomationCondition.on_cron("0 6 * * *")),
        ("on_cron: 0  6 * * 1-5 Europe/Berlin", AutomationCondition.on_cron("0 6 * * 1-5", "Europe/Berlin")),
        ("on_cron: @daily", AutomationCondition.on_cron("@daily")),
    ],
)
def test_automation(text, condition):
    assert spec(f"'dagster.automation' = '{text}'").automation_condition == condition


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ("'dagster.automation' = 'Eager'", r"p.sql:1: v: 'dagster.automation' = 'Eager' is unknown; it is one of eager, on_m"),
        ("'dagster.automation' = 'eager: 1'", "is unknown"),
        ("'dagster.automation' = 'on_cron'", "is unknown"),
        ("'dagster.automation' = 'on_cron: 0 6 * *'", r"p.sql:1: v: .*'0 6 \* \*' is no cron schedule"),
        ("'dagster.automation' = 'on_cron: 0 6 30 2 *'", "is no cron schedule"),
        ("'dagster.automation' = 'on_cron: 0 6 * * * Berlin'", "there is no time zone 'Berlin'"),
        ("'dagster.automation' = 'on_cron: 0 6 * * * ../../etc/passwd'", "there is no time zone"),
        ("'dagster.freshness' = 'soon'", r"p.sql:1: v: 'dagster.freshness' = 'soon': 'soon' is no length of time; write"),
        ("'dagster.freshness' = '0 hours'", "'0 hours' is no length of time"),
        ("'dagster.freshness' = '99999999999999 weeks'", "is too long"),
        ("'dagster.freshness' = '1 hour, 2 minutes'", "does not begin with 'warn'"),
        ("'dagster.freshness' = '1 hour, warn 2 hours'", "the time to warn has to be the shorter one"),
        ("'dagster.owners' = 'ann'", r"p.sql:1: v: Dagster refuses it: .*ann"),
        ("'dagster.group' = 'a b'", r"p.sql:1: v: Dagster refuses it: .*a b"),
        ("'dagster.kinds' = 'a,b,c,d,e,f,g,h,i,j,k'", "p.sql:1: v: Dagster refuses it: .*at most ten kinds"),
        ("'dagster.tags' = 'a b=c'", "p.sql:1: v: Dagster refuses it: "),
    ],
)
def test_wrong_values_are_refused_when_definitions_load(properties, said):
    with pytest.raises(DeclarationError, match=said):
        build_definitions(view(properties))


def test_unknown_properties_of_dagster_are_refused():
    with pytest.raises(DeclarationError, match=r"'dagster.kind' is unknown; there are .*dagster.kinds, dagster.automation"):
        view("'dagster.kind' = 'x'")


def test_the_code_version_is_of_the_query_and_not_of_how_it_is_written():
    def version(query, below="SELECT x, g FROM a"):
        plain = f"CREATE VIEW p AS SELECT * FROM q; CREATE VIEW q AS {below};"
        return project_assets(declared(f"{plain} CREATE MATERIALIZED VIEW v AS {query};")).views["v"].code_version

    base = version("SELECT g, count(*) AS n FROM p GROUP BY g")
    assert version("SELECT g , -- the group\n  count( * ) AS n\nFROM p\nGROUP   BY g") == base
    different = [
        version("SELECT g, count(*) AS N FROM p GROUP BY g"),
        version("SELECT g, count(*) AS n FROM p WHERE g = 'a b' GROUP BY g"),
        version("SELECT g, count(*) AS n FROM p WHERE g = 'a  b' GROUP BY g"),
        version("SELECT g, count(*) AS n FROM p WHERE g = 'it''s' GROUP BY g"),
        version("SELECT g, count(*) AS n FROM p WHERE g = 'it' 's' GROUP BY g"),
        version("SELECT g, count(*) AS n FROM p GROUP BY g", below="SELECT g FROM a"),
    ]
    assert len({base, *different}) == 1 + len(different)


def test_a_view_links_to_its_file(tmp_path):
    (tmp_path / "v.sql").write_text("\n-- what it is\nCREATE MATERIALIZED VIEW v AS SELECT a.x FROM a;")
    repository = build_definitions(tmp_path, warehouse="w").get_repository_def()
    metadata = repository.asset_graph.get(AssetKey("v")).metadata
    (reference,) = metadata["dagster/code_references"].code_references
    assert (reference.file_path, reference.line_number) == (str(tmp_path / "v.sql"), 3)
    assert "dagster/code_references" not in project_assets(view()).views["v"].metadata, "there is no file p.sql"


# --------------------------------------------------------------------------------------------------------- translator


class Translator(RelstateTranslator):
    def get_asset_key(self, view):
        return AssetKey(["mart", view.name])

    def get_group_name(self, view):
        return "marts"

    def get_asset_spec(self, view, project):
        found = super().get_asset_spec(view, project)
        return found.merge_attributes(tags={"by": "translator"}, deps=["policy"]) if view.name == "top" else found

    def get_source_spec(self, source, project):
        return None if source.name == "rates" else super().get_source_spec(source, project)

    def get_source_key(self, source):
        return AssetKey(["raw", source.name])

    def get_source_owners(self, source):
        return ["team:lake"]


def test_a_translator_decides_for_views_and_sources():
    found = project_assets(declared(SQL), Translator(), key_prefix="shop")
    assert [key.to_user_string() for key in found.view_keys()] == ["shop/mart/sales", "shop/mart/top"]
    (orders,) = found.sources
    assert (orders.key.to_user_string(), list(orders.owners)) == ("shop/raw/orders", ["team:lake"])
    deps = {name: {dep.asset_key.to_user_string() for dep in one.deps} for name, one in found.views.items()}
    assert deps == {"sales": {"shop/raw/orders", "raw/rates"}, "top": {"shop/mart/sales", "policy"}}
    assert (found.views["top"].group_name, found.views["top"].tags["by"]) == ("marts", "translator")


def test_a_translator_that_gives_two_views_one_key_is_refused():
    class Same(RelstateTranslator):
        def get_asset_key(self, view):
            return AssetKey("same")

    with pytest.raises(
        DeclarationError, match=r"p.sql:4: top: its asset key 'same' is for Dagster the same name as that of sales"
    ):
        project_assets(declared(SQL), Same())


# ------------------------------------------------------------------------------------------------------------ imports

IMPORTS = """
import sys
import relstate_dagster
assert set(relstate_dagster.__all__) <= set(dir(relstate_dagster))
assert not {"dagster", "pyspark"} & set(sys.modules), "importing the package is cheap"
import pkgutil, importlib
for module in pkgutil.walk_packages(relstate_dagster.__path__, "relstate_dagster."):
    if module.name != "relstate_dagster.definitions":
        importlib.import_module(module.name)
import dagster
built = [name for name, module in list(sys.modules.items()) if name.startswith("relstate_dagster")
         for value in list(vars(module).values()) if isinstance(value, dagster.Definitions)]
assert not built, built
from pyspark import SparkContext
assert SparkContext._active_spark_context is None
"""


def test_no_module_but_definitions_builds_definitions(tmp_path):
    environment = {"PATH": "/nowhere", "PYTHONPATH": ":".join(sys.path), "RELSTATE_PROJECT": "/nowhere"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", IMPORTS], cwd=tmp_path, env=environment, text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


def test_what_the_package_offers_is_there():
    for name in relstate_dagster.__all__:
        assert getattr(relstate_dagster, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'build_definition'"):
        _ = relstate_dagster.build_definition


@pytest.mark.parametrize("kind", ["upsert", "debezium"])
def test_a_table_of_changes_is_a_source_and_a_view(kind):
    sql = f"""CREATE TABLE people (id INT, name STRING COMMENT 'as written', PRIMARY KEY (id)) COMMENT 'who there is'
        TBLPROPERTIES ('source.kind' = '{kind}', 'source.order' = 'ts_ms', 'dagster.owners' = 'team:shop');
        CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM people;"""
    project = build_project(parse_text(sql, "p.sql"))
    assets = project_assets(project, key_prefix="shop", sources={"people_changelog": ["raw", "topic"]})
    assert list(assets.views) == ["people", "n"]
    assert [dep.asset_key for dep in assets.views["people"].deps] == [AssetKey(["raw", "topic"])]
    assert [dep.asset_key for dep in assets.views["n"].deps] == [AssetKey(["shop", "people"])]
    assert list(assets.views["people"].owners) == ["team:shop"]
    assert assets.views["people"].description == "who there is"
    assert assets.sources == ()


def test_a_view_has_the_key_that_it_declares():
    assert spec("'dagster.key' = 'mart / sales'", key_prefix="shop").key == AssetKey(["shop", "mart", "sales"])
    with pytest.raises(DeclarationError, match=r"v: 'dagster.key' = 'mart/' has an empty part"):
        spec("'dagster.key' = 'mart/'")
    with pytest.raises(DeclarationError, match="the asset key 'märt' has the part 'märt'"):
        spec("'dagster.key' = 'märt'")
