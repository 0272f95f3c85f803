"""Every block of docs/dagster.md: Python is run, definitions are loaded, SQL is declared, and what reads views reads some."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from dagster import AssetKey, DagsterInstance, Definitions, materialize, validate_run_config
from dagster.components.testing import create_defs_folder_sandbox

import relstate_dagster
from relstate_dagster import MaterializedViewsComponent
from relstate_dagster.assets.run_config import ViewsConfig
from relstate_dagster.assets.specs import project_assets
from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.starter import STARTER

DOCS = Path(relstate_dagster.__file__).parents[1] / "docs" / "dagster.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def blocks(language):
    return [text for written, text in BLOCKS if written == language]


def python(holding):
    (found,) = [text for text in blocks("python") if holding in text]
    return found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path, text in STARTER.items():
        place = tmp_path / "my_views" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return tmp_path


def executed(text):
    made = {"__name__": "docs"}
    exec(compile(text, "docs", "exec", dont_inherit=True), made)  # annotations as Dagster reads them
    return made


def test_every_block_is_of_a_language_that_is_run_here():
    assert {language for language, _ in BLOCKS} == {"", "python", "sql", "yaml"}
    # What is not run: the commands of dg, which is not among what is installed with the package.
    assert all(line.startswith("dg scaffold defs relstate") for text in blocks("") for line in text.splitlines())


@pytest.mark.parametrize("text", blocks("python"), ids=range(len(blocks("python"))))
def test_python_blocks_run_and_their_definitions_load(folder, text):
    made = executed(text)
    if "defs" in made:
        Definitions.validate_loadable(made["defs"])
    assert not [path for path in folder.iterdir() if path.name.endswith("_warehouse")], "loading makes nothing"


def test_the_sql_block_says_what_dagster_takes():
    (text,) = blocks("sql")
    (spec,) = project_assets(build_project(parse_text(text, "docs"))).views.values()
    assert spec.key == AssetKey(["mart", "sales_by_day"])
    assert spec.group_name == "sales"
    assert spec.automation_condition
    assert spec.freshness_policy


def test_the_run_config_is_one(folder):
    (text,) = [text for text in blocks("yaml") if text.startswith("ops:")]
    repository = executed(python("best_customer"))["defs"].get_repository_def()
    config = yaml.safe_load(text)
    assert validate_run_config(repository.get_job("shop_refresh_views"), config)["ops"]["shop_materialized_views"]["config"]
    (described,) = config["ops"].values()
    assert set(described["config"]) == set(ViewsConfig.model_fields)
    rows = re.findall(
        r"^\| `(\w+)` \|", DOCS.read_text(encoding="utf-8").split("## Run config")[1].split("\n## ")[0], re.MULTILINE
    )
    assert rows == list(ViewsConfig.model_fields)


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_the_component_loads():
    (text,) = [text for text in blocks("yaml") if "type: relstate" in text]
    with create_defs_folder_sandbox() as sandbox:
        for path, starter in STARTER.items():
            place = sandbox.project_root / "my_views" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(starter)
        path = sandbox.scaffold_component(
            component_cls=MaterializedViewsComponent, defs_path="shop", defs_yaml_contents=yaml.safe_load(text)
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, definitions):
            view = definitions.resolve_asset_graph().get(AssetKey(["shop", "sales_by_customer"]))
    assert (view.group_name, view.tags["line"]) == ("sales", "1")


def test_what_reads_views_reads_them(spark, folder, capsys):
    made = executed(python("best_customer").replace('path="shop_warehouse"', f'path="{folder}/shop_warehouse"'))
    repository = made["defs"].get_repository_def()
    with DagsterInstance.ephemeral() as instance:
        assert repository.get_job("shop_refresh_views").execute_in_process(instance=instance).success
        orders = f"delta.`{folder}/shop_warehouse/sources/orders`"
        spark.sql(f"INSERT INTO {orders} VALUES (1, 'ann', 9.50), (2, 'bob', 20), (3, 'ann', 0.50)")
        assert repository.get_job("__ASSET_JOB").execute_in_process(instance=instance).success
        assert "bob" in capsys.readouterr().out
        resources = {"warehouse": made["warehouse"]}
        assert materialize([executed(python("def customers"))["customers"]], resources=resources, instance=instance).success
    assert "2 customers" in capsys.readouterr().err
