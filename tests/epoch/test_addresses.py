"""Warehouses and sources in folders with odd names: made, opened again, maintained, verified."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.state_lib.errors import AddressError
from tests.epoch.scripts import Script


@pytest.mark.parametrize("name", ["my wh", "a#b 50%+:;,$", "it's ünï日本"])
def test_a_warehouse_in_an_odd_folder(spark: SparkSession, tmp_path: Path, name: str) -> None:
    folder, external = tmp_path / name, tmp_path / f"{name} too"
    deltalake.write_deltalake(external, pa.table({"k": [1, 2]}), configuration={"delta.enableChangeDataFeed": "true"})
    location = str(external).replace("'", "\\'")
    script = Script(spark, folder)
    script.run(
        "CREATE TABLE t (k INT, g STRING, PRIMARY KEY (k)) PARTITIONED BY (g);"
        "INSERT INTO t VALUES (1, 'x y'), (2, '50%'), (3, '\u2028');"
        f"CREATE TABLE u USING delta LOCATION '{location}';"
        "CREATE MATERIALIZED VIEW v AS SELECT t.g, count(*) AS n FROM t JOIN u ON t.k = u.k GROUP BY t.g"
    )
    again = Script(spark, folder)
    again.run("INSERT INTO t VALUES (4, '\u2028'); UPDATE t SET g = 'x y' WHERE k = 2; DELETE FROM t WHERE k = 3")
    deltalake.write_deltalake(external, pa.table({"k": [4]}), mode="append")
    again.run("REFRESH")
    again.verify()
    assert again.rows("SELECT * FROM v") == [("\u2028", 1), ("x y", 2)]
    assert {p.name for p in tmp_path.iterdir()} == {name, f"{name} too"}


@pytest.mark.parametrize("text", ["\u2028", "\u2029", "\u0085", "\x0b", "a\rb"])
def test_keys_with_ends_of_lines(script: Script, text: str) -> None:
    script.run("CREATE TABLE t (k STRING, v INT, PRIMARY KEY (k))")
    script.run("CREATE MATERIALIZED VIEW v AS SELECT k, sum(v) AS s FROM t GROUP BY k")
    script.run(f"INSERT INTO t VALUES ('{text}', 1), ('b', 2); REFRESH")
    script.run(f"UPDATE t SET v = v + 1 WHERE k = '{text}'; INSERT INTO t VALUES ('{text}{text}', 1); REFRESH; VERIFY")


def test_a_file_address_is_the_folder_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for form in ("file:", "file://", ""):
        warehouse = Warehouse(f"{form}{tmp_path}/w")
        assert warehouse.root == f"{tmp_path}/w"
        assert warehouse.is_local
        assert warehouse.holders_path is not None
    assert Warehouse("s3://b/w").root == "s3a://b/w"
    with pytest.raises(AddressError, match="pattern"):
        Warehouse(tmp_path / "x[1]")
    assert list(tmp_path.iterdir()) == []
