"""Iceberg tables in an object store, by a catalog and by their folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from relstate_dagster.state_lib.lake.files import write_once
from tests.capabilities import commits_to_s3
from tests.epoch.scripts import Script
from tests.iceberg_catalog import lake
from tests.stores import Served, reach, served

pytestmark = [
    pytest.mark.skipif(not commits_to_s3(), reason="Spark's Hadoop cannot commit to S3 safely, and is refused"),
    pytest.mark.filterwarnings("ignore:Delete operation did not match any records"),
]

_COLUMNS = pa.schema([pa.field("id", pa.int64()), pa.field("g", pa.string()), pa.field("n", pa.float64())])


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("store") / "requests.log") as started:
        reach(spark)
        yield started


@pytest.fixture
def catalog(store: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalog whose tables are in the store."""
    return lake(
        monkeypatch,
        tmp_path,
        f"s3://{store.bucket}/{tmp_path.name}/the lake",
        S3__ENDPOINT=store.endpoint,
        S3__ACCESS_KEY_ID="key",
        S3__SECRET_ACCESS_KEY="secret",
        S3__REGION="us-east-1",
    )


def _rows(numbers: range) -> pa.Table:
    return pa.Table.from_pylist([{"id": n, "g": f"g {n % 3}", "n": n / 4} for n in numbers], _COLUMNS)


@pytest.mark.parametrize("in_store", [False, True])
def test_views_follow_a_table_in_a_store(
    spark: SparkSession, store: Served, catalog: Catalog, tmp_path: Path, in_store: bool
) -> None:
    table = catalog.create_table("sales.orders", _COLUMNS)
    with table.update_spec() as update:
        update.add_identity("g")
    table.append(_rows(range(20)))
    script = Script(spark, f"s3://{store.bucket}/{tmp_path.name}/warehouse" if in_store else tmp_path / "warehouse")
    script.run("""
        CREATE TABLE orders USING iceberg TBLPROPERTIES ('source.table' = 'lake.sales.orders');
        CREATE MATERIALIZED VIEW sums AS SELECT g, sum(n) AS n, count(*) AS rows FROM orders GROUP BY g;
        CREATE MATERIALIZED VIEW some AS SELECT id, g FROM orders WHERE n > 1; REFRESH; VERIFY""")
    for change in (
        lambda: table.append(_rows(range(20, 25))),
        lambda: table.delete("id in (1, 2, 21)"),
        lambda: table.overwrite(_rows(range(4)), "g = 'g 1'"),
    ):
        change()
        script.run("REFRESH; VERIFY")
        held = table.scan().to_arrow()
        assert script.rows("SELECT count(*) FROM some") == [(sum(n > 1 for n in held["n"].to_pylist()),)]
        assert script.rows("SELECT sum(rows) FROM sums") == [(held.num_rows,)]


def test_a_table_is_found_by_its_folder(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    table = catalog.create_table("sales.people", _COLUMNS)
    table.append(_rows(range(6)))
    version = table.metadata_location.rpartition("/")[2].removesuffix(".metadata.json")
    write_once(f"{table.location()}/metadata/version-hint.text", version.encode())
    script = Script(spark, tmp_path / "warehouse")
    script.run(f"""
        CREATE TABLE people USING iceberg LOCATION '{table.location()}';
        CREATE MATERIALIZED VIEW counted AS SELECT g, count(*) AS rows FROM people GROUP BY g; REFRESH; VERIFY""")
    assert script.rows("SELECT sum(rows) FROM counted") == [(6,)]
