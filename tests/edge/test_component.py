"""The component of ``dg``: scaffolded, loaded from a ``defs.yaml``, and overridden in a project's own module."""

from __future__ import annotations

from pathlib import Path

import pytest
from dagster import AssetKey, Definitions, materialize
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.core.package_entry import get_package_objects_in_module
from dagster.components.testing import create_defs_folder_sandbox

import relstate_dagster
from relstate_dagster import MaterializedViewsComponent, WarehouseResource

# Dagster itself makes links to a component's files, which it calls beta each time.
pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

VIEWS = """
CREATE TABLE orders (id INT, customer STRING, cents BIGINT, PRIMARY KEY (id));
CREATE MATERIALIZED VIEW sales AS SELECT customer, sum(cents) AS cents FROM orders GROUP BY customer;
"""


@pytest.fixture
def views(tmp_path):
    folder = tmp_path / "sql"
    folder.mkdir()
    (folder / "views.sql").write_text(VIEWS)
    return folder


@pytest.fixture
def sandbox():
    with create_defs_folder_sandbox() as made:
        yield made


def loaded(sandbox, views, component=MaterializedViewsComponent, **attributes):
    name = f"{component.__module__}.{component.__name__}"
    contents = {"type": name, "attributes": {"project": str(views), **attributes}}
    path = sandbox.scaffold_component(component_cls=component, defs_path="shop", defs_yaml_contents=contents)
    with sandbox.load_component_and_build_defs(defs_path=path) as (made, definitions):
        return made, definitions


def keys_of(definitions):
    return {key.to_user_string() for key in definitions.resolve_asset_graph().get_all_asset_keys()}


def test_what_is_scaffolded_loads_and_twice_as_well(sandbox):
    sandbox.scaffold_component(component_cls=MaterializedViewsComponent, defs_path="shop")
    sandbox.scaffold_component(component_cls=MaterializedViewsComponent, defs_path="shop-ü")
    with sandbox.build_all_defs() as definitions:
        Definitions.validate_loadable(definitions)
        assert keys_of(definitions) == {
            f"{prefix}/{name}" for prefix in ("shop", "shop__") for name in ("orders", "sales_by_customer")
        }
        warehouse = definitions.resources["shop_warehouse"].path
    assert Path(warehouse) == sandbox.project_root / "shop_warehouse"
    assert not Path(warehouse).exists(), "loading makes no warehouse"


def test_a_project_that_is_there_is_named_from_the_root(sandbox, monkeypatch):
    folder = sandbox.project_root / "sql"
    folder.mkdir()
    (folder / "views.sql").write_text(VIEWS)
    monkeypatch.chdir(sandbox.project_root)
    path = sandbox.scaffold_component(
        component_cls=MaterializedViewsComponent,
        defs_path="shop",
        scaffold_params={"project_path": "sql", "warehouse": "s3://bucket/warehouse"},
    )
    written = (path / "defs.yaml").read_text()
    assert "'{{ context.project_root }}/sql'" in written
    assert "warehouse: s3://bucket/warehouse" in written
    with sandbox.load_component_and_build_defs(defs_path=path) as (_, definitions):
        assert keys_of(definitions) == {"shop/orders", "shop/sales"}
        assert definitions.resources["shop_warehouse"].path == "s3://bucket/warehouse"


def test_attributes_reach_the_definitions(sandbox, views):
    _, definitions = loaded(
        sandbox,
        views,
        warehouse="home",
        functions="shop.functions:register",
        resource_key="lake",
        name="mart",
        key_prefix=["eu", "shop"],
        sources={"orders": "raw/orders"},
        pool="spark",
        op_tags={"size": "big"},
        translation={
            "description": "{{ view.name }} of line {{ view.line }}",
            "tags": {"by": "yaml"},
        },
    )
    graph = definitions.resolve_asset_graph()
    sales = graph.get(AssetKey(["eu", "shop", "sales"]))
    assert {key.to_user_string() for key in sales.parent_keys} == {"raw/orders"}
    assert (sales.description, sales.tags["by"]) == ("sales of line 3", "yaml")
    lake = definitions.resources["lake"]
    assert lake.functions == "shop.functions:register"
    assert Path(lake.path) == sandbox.defs_folder_path / "shop" / "home", "a relative path starts at the defs.yaml"
    (op,) = [asset.op for asset in definitions.assets if hasattr(asset, "op")]
    assert (op.name, op.pool, op.tags["size"]) == ("mart_materialized_views", "spark", "big")


def test_without_a_warehouse_the_project_has_the_resource(sandbox, views):
    _, definitions = loaded(sandbox, views)
    assert not definitions.resources
    ours = Definitions(resources={"warehouse": WarehouseResource(path="w")})
    assert keys_of(Definitions.merge(definitions, ours)) == {"orders", "sales"}


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"resource_keyz": "x"}, "resource_keyz"),
        ({"key_prefix": {"a": 1}}, "key_prefix"),
        ({"sources": {"orderz": "a"}}, "no source 'orderz'"),
        ({"translation": {"owners": ["ann"]}}, "views.sql:3: sales: Dagster refuses it"),
        ({"project": "/nowhere"}, "there is no project folder /nowhere"),
    ],
)
def test_wrong_attributes(sandbox, views, attributes, said):
    with pytest.raises(ComponentTreeException) as refused:
        loaded(sandbox, views, **attributes)
    assert said in str(refused.value.__cause__)


class OurViews(MaterializedViewsComponent):
    """A component of a project's own."""

    def get_asset_spec(self, view, project):
        found = super().get_asset_spec(view, project)
        return found.replace_attributes(group_name="ours", key=AssetKey(["mart", view.name]))

    def execute(self, context, warehouse, assets):
        context.log.info("before")
        warehouse.said.append(assets.names_of(context.selected_asset_keys))
        yield from super().execute(context, warehouse, assets)


class Idle:
    """A warehouse in which nothing is to be done."""

    def __init__(self):
        self.said = []

    def idle_reports(self, project, names, **_config):
        return []


def test_methods_of_a_subclass_are_called(sandbox, views):
    made, definitions = loaded(sandbox, views, OurViews, key_prefix="shop", translation={"tags": {"by": "yaml"}})
    assert type(made).__name__ == "OurViews"
    (asset,) = [asset for asset in definitions.assets if hasattr(asset, "op")]
    (spec,) = asset.specs
    assert (spec.key.to_user_string(), spec.group_name, spec.tags["by"]) == ("shop/mart/sales", "ours", "yaml")
    warehouse = Idle()
    assert materialize([asset], resources={"warehouse": warehouse}).success
    assert warehouse.said == [["sales"]]


def test_the_package_has_one_component_in_the_registry():
    (found,) = get_package_objects_in_module(relstate_dagster)
    assert found == ("MaterializedViewsComponent", MaterializedViewsComponent)
    pyproject = (Path(relstate_dagster.__file__).parents[1] / "pyproject.toml").read_text()
    assert '[project.entry-points."dagster_dg_cli.registry_modules"]\nrelstate_dagster = "relstate_dagster"\n' in pyproject
