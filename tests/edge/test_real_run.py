"""A real materialization through Dagster: two epochs on a small warehouse, then both checks."""

from __future__ import annotations

from dagster import AssetKey, DagsterInstance

from relstate_dagster.definitions import build_definitions
from relstate_dagster.settings import Location

DECLARATIONS = """
CREATE TABLE orders (id INT, customer STRING, cents BIGINT, PRIMARY KEY (id)) COMMENT 'what was bought';
CREATE MATERIALIZED VIEW per_customer COMMENT 'Sales.'
AS SELECT customer, count(*) AS orders, sum(cents) AS cents FROM orders GROUP BY customer;
CREATE MATERIALIZED VIEW big_customers
AS SELECT customer, cents FROM per_customer WHERE cents >= 1000;
"""


def test_two_epochs_and_their_proof(spark, tmp_path):
    project, warehouse = tmp_path / "project", tmp_path / "warehouse"
    project.mkdir()
    (project / "views.sql").write_text(DECLARATIONS)
    repository = build_definitions(Location(project, str(warehouse))).get_repository_def()
    orders = f"delta.`{warehouse}/sources/orders`"

    with DagsterInstance.ephemeral() as instance:

        def run(job):
            result = repository.get_job(job).execute_in_process(instance=instance)
            assert result.success
            return {
                event.asset_key.to_user_string(): {name: value.value for name, value in event.materialization.metadata.items()}
                for event in result.get_asset_materialization_events()
            }

        first = run("refresh_views")
        assert set(first) == {"per_customer", "big_customers"}
        assert first["per_customer"]["rows out +"] == 0

        spark.sql(f"INSERT INTO {orders} VALUES (1, 'ann', 900), (2, 'ann', 200), (3, 'bob', 50)")
        second = run("refresh_views")
        assert second["per_customer"]["rows in +"] == 3
        assert (second["per_customer"]["rows out +"], second["per_customer"]["rows out −"]) == (2, 0)
        assert second["big_customers"]["epoch"] == second["per_customer"]["epoch"] > first["per_customer"]["epoch"]
        assert second["per_customer"]["source versions"] == {"orders": 1}
        columns = [column.name for column in second["big_customers"]["dagster/column_schema"].columns]
        assert columns == ["customer", "cents"]

        spark.sql(f"DELETE FROM {orders} WHERE id = 1")
        third = run("refresh_views")
        assert (third["big_customers"]["rows out +"], third["big_customers"]["rows out −"]) == (0, 1)

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
