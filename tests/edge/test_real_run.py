"""A real materialization through Dagster: two epochs on a small warehouse, then both checks."""

from __future__ import annotations

import re

from dagster import AssetKey, DagsterInstance
from typer.testing import CliRunner

from relstate_dagster.assets.metadata import EPOCH_METADATA
from relstate_dagster.cli import app
from relstate_dagster.code_location import build_definitions
from relstate_dagster.jobs.api import Warehouse
from relstate_dagster.resources import WarehouseResource
from relstate_dagster.state_lib.errors import DeclarationError

DECLARATIONS = """
CREATE TABLE orders (id INT, customer STRING, cents BIGINT, PRIMARY KEY (id)) COMMENT 'what was bought';
CREATE MATERIALIZED VIEW per_customer COMMENT 'Sales.'
AS SELECT customer, count(*) AS orders, sum(cents) AS cents FROM orders GROUP BY customer;
CREATE MATERIALIZED VIEW big_customers
AS SELECT customer, cents FROM per_customer WHERE cents >= 1000;
"""

FUNCTION_VIEWS = """
CREATE TABLE orders (id INT, customer STRING, cents BIGINT, PRIMARY KEY (id));
CREATE MATERIALIZED VIEW per_initial AS SELECT initial(customer) AS i, sum(cents) AS cents FROM orders GROUP BY 1;
"""
FUNCTIONS = """
def initial(name):
    return name[:1].upper()


def register(spark):
    spark.udf.register("initial", initial, "string")
"""


def test_two_epochs_and_their_proof(spark, tmp_path):
    project, warehouse = tmp_path / "project", tmp_path / "warehouse"
    project.mkdir()
    (project / "views.sql").write_text(DECLARATIONS)
    repository = build_definitions(project, warehouse=warehouse).get_repository_def()
    orders = f"delta.`{warehouse}/sources/orders`"

    said: list[str] = []
    errors: list[str] = []
    with DagsterInstance.ephemeral() as instance:

        def run(job, **config):
            asked = {"ops": {"materialized_views": {"config": config}}}
            result = repository.get_job(job).execute_in_process(instance=instance, run_config=asked, raise_on_error=False)
            errors[:] = [str(e.step_failure_data.error) for e in result.all_events if e.is_step_failure]
            if errors:
                return None
            said[:] = [entry.user_message for entry in instance.all_logs(result.run_id)]
            return {
                event.asset_key.to_user_string(): {name: value.value for name, value in event.materialization.metadata.items()}
                for event in result.get_asset_materialization_events()
            }

        first = run("refresh_views")
        assert set(first) == {"per_customer", "big_customers"}
        assert first["per_customer"]["rows out +"] == 0
        assert first["per_customer"]["strategy"] == "backfill"
        assert set(first["per_customer"]) <= set(EPOCH_METADATA)
        wanted = (r"Spark \S+ is there after", "2 views are planned after", "per_customer: built to epoch 1")
        assert all(any(re.match(pattern, line) for line in said) for pattern in wanted), said

        spark.sql(f"INSERT INTO {orders} VALUES (1, 'ann', 900), (2, 'ann', 200), (3, 'bob', 50)")
        second = run("refresh_views")
        assert second["per_customer"]["rows in +"] == 3
        assert (second["per_customer"]["rows out +"], second["per_customer"]["rows out −"]) == (2, 0)
        assert (second["per_customer"]["strategy"], second["per_customer"]["dagster/row_count"]) == ("incremental", 2)
        assert second["per_customer"]["dagster/uri"] == f"{warehouse}/views/per_customer"
        assert second["big_customers"]["epoch"] == second["per_customer"]["epoch"] > first["per_customer"]["epoch"]
        assert [record.data["version"] for record in second["per_customer"]["inputs"].records] == ["1"]
        columns = [column.name for column in second["big_customers"]["dagster/column_schema"].columns]
        assert columns == ["customer", "cents"]

        spark.sql(f"DELETE FROM {orders} WHERE id = 1")
        third = run("refresh_views")
        assert (third["big_customers"]["rows out +"], third["big_customers"]["rows out −"]) == (0, 1)

        def maintained(**config):
            asked = {"ops": {"compact_and_vacuum": {"config": config}}}
            done = repository.get_job("maintain_state").execute_in_process(
                instance=instance, run_config=asked, raise_on_error=False
            )
            outputs = [e.step_output_data for e in done.all_events if e.is_successful_output]
            errors[:] = [str(e.step_failure_data.error) for e in done.all_events if e.is_step_failure]
            return (
                {name: {r.data["of"]: r.data for r in table.records} for name, table in outputs[0].metadata.items()}
                if outputs
                else {}
            )

        compacted = maintained(views=["per_customer"], vacuum=False)
        assert list(compacted) == ["compaction"]
        (of_view,) = compacted["compaction"].items()
        assert (of_view[0], of_view[1]["files before"] > of_view[1]["files after"]) == ("per_customer", True)
        assert maintained(views=["orders"]) == {}
        assert "views: the warehouse has no view orders; there are big_customers, per_customer" in errors[0]
        deleted = maintained(epochs=1, hours=0)["vacuum"]
        assert set(deleted) == {"per_customer", "big_customers", "catalog"}
        assert deleted["catalog"]["files deleted"] > 0

        assert run("verify_views") == {}
        for view in ("per_customer", "big_customers"):
            checks = instance.event_log_storage.get_asset_check_summary_records(
                [key for key in repository.asset_graph.asset_check_keys if key.asset_key == AssetKey(view)]
            )
            outcomes = {
                key.name: record.last_check_execution_record.event.dagster_event.event_specific_data.passed
                for key, record in checks.items()
            }
            assert outcomes == {"matches_full_recompute": True, "stream_key_unique": True}

        # Run config: the same sources, read no further than a version; and all of them, again.
        written = Warehouse(str(warehouse)).read().version
        for config, wanted in (
            ({"until_version": {"orders": 1}}, "per_customer has read source orders up to version 2"),
            ({"until_version": {"orders": 3}}, "has no version 3: the newest is 2"),
            ({"until_version": {"order": 3}}, "there is no source named order; there are orders"),
            ({"full_refresh": ["orders"]}, "the project has no view orders"),
        ):
            assert run("refresh_views", **config) is None
            assert wanted in errors[0]
        assert Warehouse(str(warehouse)).read().version == written
        assert run("refresh_views", until_version={"orders": 2}) == {}, "nothing to read up to there"
        again = run("refresh_views", full_refresh=["*"], until_version={"orders": 1}, strict=True)
        assert [r.data["version"] for r in again["per_customer"]["inputs"].records] == ["1"]
        assert set(run("refresh_views")) == {"per_customer", "big_customers"}

        assert run("refresh_views") == {}
        assert not [line for line in said if "did not yield" in line], "checks that a run leaves out are not forgotten ones"
        observed = instance.fetch_observations(AssetKey("orders"), limit=10).records
        told = [{k: v.value for k, v in r.event_log_entry.asset_observation.metadata.items()} for r in observed]
        moved = [(o["version"], o.get("rows in +"), o.get("rows in −")) for o in told[2:4]]
        assert moved == [(2, 0, 1), (1, 3, 0)], told
        assert [o["version"] for o in told] == [2, 1, 2, 1, 0], told


def test_a_view_that_is_left_behind_fails_its_asset_and_not_the_others(spark, tmp_path):
    project, warehouse = tmp_path / "project", tmp_path / "warehouse"
    project.mkdir()
    others = "CREATE MATERIALIZED VIEW counts AS SELECT count(*) AS n FROM orders;"
    (project / "views.sql").write_text(DECLARATIONS + others)
    repository = build_definitions(project, warehouse=warehouse).get_repository_def()
    orders = f"delta.`{warehouse}/sources/orders`"
    with DagsterInstance.ephemeral() as instance:

        def run():
            result = repository.get_job("refresh_views").execute_in_process(instance=instance, raise_on_error=False)
            done = {event.asset_key.to_user_string() for event in result.get_asset_materialization_events()}
            return result.success, done, [str(e.step_failure_data.error) for e in result.all_events if e.is_step_failure]

        assert run() == (True, {"per_customer", "big_customers", "counts"}, [])
        spark.sql(f"INSERT INTO {orders} VALUES (1, 'ann', 9223372036854775807), (2, 'ann', 1)")
        success, done, errors = run()
        assert (success, done) == (False, {"counts"})
        assert "view per_customer, epoch" in errors[0]
        assert "overflow" in errors[0].lower()
        spark.sql(f"DELETE FROM {orders} WHERE id = 2")
        assert run()[:2] == (True, {"per_customer", "big_customers", "counts"})


def test_a_project_with_functions_of_its_own(spark, tmp_path, monkeypatch):
    project, warehouse = tmp_path / "project", tmp_path / "warehouse"
    project.mkdir()
    (project / "views.sql").write_text(FUNCTION_VIEWS)
    # In the working directory of a person, where no worker of Spark looks.
    (tmp_path / "shop_functions.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    resource = WarehouseResource(path=str(warehouse), functions="shop_functions:register")
    repository = build_definitions(project, warehouse=resource).get_repository_def()
    with DagsterInstance.ephemeral() as instance:
        for change in ("INSERT INTO {} VALUES (1, 'ann', 900), (2, 'bob', 200)", "UPDATE {} SET customer = 'al' WHERE id = 2"):
            assert repository.get_job("refresh_views").execute_in_process(instance=instance).success
            spark.sql(change.format(f"delta.`{warehouse}/sources/orders`"))
        assert repository.get_job("refresh_views").execute_in_process(instance=instance).success
    # The command line reads the same variable.
    monkeypatch.setenv("RELSTATE_FUNCTIONS", "shop_functions:register")
    verified = CliRunner().invoke(app, ["verify", "--warehouse", str(warehouse)])
    assert verified.exit_code == 0, verified.output
    view = Warehouse(str(warehouse)).read().views["per_initial"]
    assert (view.strategy, view.functions) == ("incremental", ("initial",))
    rows = spark.read.format("delta").load(f"{warehouse}/views/per_initial").select("i", "cents").collect()
    assert [tuple(row) for row in rows] == [("A", 1100)]
    monkeypatch.setenv("RELSTATE_FUNCTIONS", "shop_functionz:register")
    failed = CliRunner().invoke(app, ["run", "--project", str(project), "--warehouse", str(warehouse)])
    assert isinstance(failed.exception, DeclarationError)
    assert "module shop_functionz cannot be imported" in str(failed.exception)
