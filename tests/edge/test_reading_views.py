"""Assets below views, which read them through the resource and the IO manager at the epoch of their run; real runs."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from dagster import AssetIn, AssetKey, AssetSpec, DagsterInstance, Definitions, asset, define_asset_job
from pyspark.sql import DataFrame

from relstate_dagster import ViewIOManager, WarehouseResource, build_definitions
from relstate_dagster.state_lib.errors import DeclarationError, EpochError

DECLARATIONS = """
CREATE TABLE orders (id INT, customer STRING, cents DECIMAL(12,2), at TIMESTAMP, tags MAP<STRING, INT>);
CREATE MATERIALIZED VIEW sales AS SELECT customer, sum(cents) AS cents, max(at) AS `_last` FROM orders GROUP BY customer;
CREATE MATERIALIZED VIEW totals AS SELECT sum(cents) AS `total, of all` FROM sales;
CREATE MATERIALIZED VIEW by_customer PARTITIONED BY (customer) AS SELECT id, customer, tags FROM orders;
"""
ROWS = "(1, 'ann', 1.5, TIMESTAMP'2024-01-01 00:00:00', map('a', 1)), (2, NULL, 2, NULL, NULL), (3, 'b=c/d', 3, NULL, map())"
NOON = datetime(2024, 1, 1, tzinfo=timezone.utc)


def of(name, **options):
    return AssetIn(key=["shop", name], input_manager_key="views", **options)


@pytest.fixture
def home(spark, tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "views.sql").write_text(DECLARATIONS)
    return Home(spark, tmp_path)


class Home:
    def __init__(self, spark, folder):
        self.spark, self.folder = spark, folder
        self.warehouse = WarehouseResource(path=str(folder / "warehouse"))
        self.orders = f"delta.`{folder}/warehouse/sources/orders`"

    def definitions(self, *assets):
        computed = [one.key for one in assets if not isinstance(one, AssetSpec)]
        below = Definitions(
            assets=assets,
            resources={"views": ViewIOManager(warehouse=self.warehouse)},
            jobs=[define_asset_job("below", selection=computed)] if computed else [],
        )
        return Definitions.merge(build_definitions(self.folder / "project", warehouse=self.warehouse, key_prefix="shop"), below)

    def run(self, job, *assets, **options):
        with DagsterInstance.ephemeral() as instance:
            repository = self.definitions(*assets).get_repository_def()
            return repository.get_job(job).execute_in_process(instance=instance, **options)

    def insert(self, rows):
        self.spark.sql(f"INSERT INTO {self.orders} VALUES {rows}")


def test_rows_are_read_as_the_argument_is_typed(home):
    read: dict[str, Any] = {}

    @asset(ins={"frame": of("sales"), "untyped": of("totals")})
    def by_spark(frame: DataFrame, untyped) -> None:
        read.update(frame=frame, untyped=untyped)

    @asset(ins={"table": of("sales"), "mapped": of("totals"), "partitioned": of("by_customer")})
    def by_arrow(table: pa.Table, mapped: pa.Table, partitioned: pa.Table) -> None:
        read.update(table=table, mapped=mapped, partitioned=partitioned)

    @asset(ins={"pandas": of("sales")})
    def by_pandas(pandas: pd.DataFrame) -> None:
        read.update(pandas=pandas)

    assert home.run("shop_refresh_views").success
    home.insert(ROWS)
    assert home.run("__ASSET_JOB", by_spark, by_arrow, by_pandas).success
    columns = ["customer", "cents", "_last"]
    assert (read["frame"].columns, read["table"].column_names, list(read["pandas"].columns)) == (columns, columns, columns)
    wanted = {("ann", Decimal("1.50"), NOON), (None, Decimal("2.00"), None), ("b=c/d", Decimal("3.00"), None)}
    assert {tuple(row.values()) for row in read["table"].to_pylist()} == wanted
    assert (
        read["frame"]
        .exceptAll(home.spark.read.format("delta").load(f"{home.folder}/warehouse/views/sales").drop("_key"))
        .isEmpty()
    )
    assert read["frame"].count() == len(read["pandas"]) == 3
    assert [row.asDict() for row in read["untyped"].collect()] == [{"total, of all": Decimal("6.50")}]
    assert read["mapped"].to_pylist() == [{"total, of all": Decimal("6.50")}], "delta-rs does not read such names, Spark does"
    assert sorted(read["partitioned"].to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "customer": "ann", "tags": [("a", 1)]},
        {"id": 2, "customer": None, "tags": None},
        {"id": 3, "customer": "b=c/d", "tags": []},
    ]


def test_a_run_reads_all_views_at_its_own_epoch(home):
    seen: list[tuple[int, Decimal]] = []
    home.run("shop_refresh_views")

    @asset(ins={"sales": of("sales")})
    def first(sales: pa.Table) -> None:
        """Reads, then another run moves the views on."""
        seen.append((len(sales), sum(sales["cents"].to_pylist())))
        home.insert("(9, 'eve', 100, NULL, NULL)")
        assert home.run("shop_refresh_views").success

    @asset(ins={"totals": of("totals"), "sales": of("sales")}, deps=[first])
    def second(totals: pd.DataFrame, sales: pd.DataFrame) -> None:
        seen.append((len(sales), totals["total, of all"][0]))

    home.insert(ROWS)
    # With the views in the run, their epoch is that of the run.
    assert home.run("__ASSET_JOB", first, second).success
    assert seen == [(3, Decimal("6.50")), (3, Decimal("6.50"))]
    # Without them, it is the newest when the run first reads.
    seen.clear()
    assert home.run("below", first, second).success
    assert seen == [(4, Decimal("106.50")), (4, Decimal("106.50"))]


def test_the_resource_reads_at_an_epoch(home):
    home.run("shop_refresh_views")
    before = home.warehouse.newest_epoch()
    home.insert(ROWS)
    home.run("shop_refresh_views")
    assert home.warehouse.read("sales", "arrow", epoch=before).num_rows == 0
    assert home.warehouse.read("sales", "pandas").shape == (3, 3)
    assert home.warehouse.read("sales").count() == 3
    with pytest.raises(DeclarationError, match="no materialized view named salez; there are by_customer, sales, totals"):
        home.warehouse.read("salez", "arrow")
    with pytest.raises(EpochError, match="has no epoch up to 0"):
        home.warehouse.read("sales", "arrow", epoch=0)


def test_what_cannot_be_read_or_written_is_said(home):
    home.run("shop_refresh_views")

    @asset(ins={"sales": of("sales")})
    def wrong_type(sales: list) -> None:
        """Wants a list."""

    @asset(io_manager_key="views")
    def writer():
        return 1

    @asset(ins={"renamed": AssetIn(key="elsewhere", input_manager_key="views", metadata={"relstate/view": "sales"})})
    def by_name(renamed: pa.Table) -> None:
        assert renamed.column_names == ["customer", "cents", "_last"]

    for wrong, said in ((wrong_type, "shop/sales cannot be read as"), (writer, "writer is no view: ViewIOManager reads views")):
        with pytest.raises(DeclarationError, match=said):
            home.run("below", wrong)
    assert home.run("below", by_name, AssetSpec("elsewhere")).success
    assert AssetKey(["shop", "sales"]) in home.definitions().get_repository_def().asset_graph.get_all_asset_keys()
