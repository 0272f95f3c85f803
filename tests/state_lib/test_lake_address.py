"""One address has one meaning for Spark, delta-rs and Arrow, or is refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from relstate_dagster.state_lib.errors import AddressError
from relstate_dagster.state_lib.lake.address import Address, filesystem_of, full_path
from relstate_dagster.state_lib.lake.commit import write_deltalake
from relstate_dagster.state_lib.lake.log import DeltaLog
from relstate_dagster.state_lib.lake.parquet import opened_parquet
from relstate_dagster.state_lib.lake.table import DeltaTable


@pytest.mark.parametrize(
    ("written", "spark", "delta_rs"),
    [
        ("/x//y/", "/x/y", "/x/y"),
        ("/my wh", "/my wh", "/my wh"),
        ("file:/x", "/x", "/x"),
        ("file:///my%20wh/", "/my wh", "/my wh"),
        ("file://localhost/x", "/x", "/x"),
        ("s3://b/k/", "s3a://b/k", "s3://b/k"),
        ("s3a://b/k", "s3a://b/k", "s3://b/k"),
        ("S3://b/K", "s3a://b/K", "s3://b/K"),
        ("gs://b/k", "gs://b/k", "gs://b/k"),
        ("abfss://c@a.dfs.core.windows.net/k", *2 * ("abfss://c@a.dfs.core.windows.net/k",)),
        ("hdfs://h:9000/k", "hdfs://h:9000/k", "hdfs://h:9000/k"),
    ],
)
def test_forms_of_an_address(written: str, spark: str, delta_rs: str) -> None:
    address = Address.parse(written)
    assert (address.spark, address.delta_rs) == (spark, delta_rs)
    assert Address.parse(address.spark).delta_rs == delta_rs
    assert address.is_local == spark.startswith("/")


def test_relative_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Address.parse("a/../b").spark == f"{tmp_path}/b"
    assert Address.parse(Path("b")).spark == f"{tmp_path}/b"


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("", "is empty"),
        ("file:x", "relative address"),
        ("file://host/x", "the machine host"),
        ("ftp://h/x", "begin with ftp://"),
        ("s3:/b/k", "two slashes"),
        ("dbfs:/x", "two slashes"),
        ("s3://", "no bucket"),
        ("/x[1]", "pattern"),
        ("/x{1}", "pattern"),
        ("s3://b/x*", "pattern"),
        ("/a?b", "pattern"),
        ("/a%20b", "percent sign"),
        ("file:/a%2520b", "percent sign"),
        ("C:\\x", "backslash"),
        ("/a`b", "SQL"),
        ("/a\nb", "control characters"),
    ],
)
def test_addresses_that_cannot_work(written: str, says: str) -> None:
    with pytest.raises(AddressError, match=says):
        Address.parse(written)


@pytest.mark.parametrize("name", ["my wh", "a#b", "100%", "a+b", "it's", "ünï日本", "a:b", 'a"b', " a "])
def test_odd_folders_are_where_they_are_named(tmp_path: Path, name: str) -> None:
    path = f"{tmp_path}/{name}/t"
    write_deltalake(path, pa.table({"k": [1], "p": ["x y%20+ü"]}), partition_by=["p"])
    table = DeltaTable(path)
    write_deltalake(table, pa.table({"k": [2], "p": ["x y%20+ü"]}), mode="append")
    assert (tmp_path / name / "t" / "_delta_log").is_dir()
    assert [p.name for p in tmp_path.iterdir()] == [name]
    log = DeltaLog(path)
    assert log.latest_version() == 1
    for uri in table.file_uris():
        with opened_parquet(uri) as parquet:
            assert parquet.metadata.num_rows == 1
    for action in log.commit(1):
        if "add" in action:
            assert full_path(path, action["add"]["path"]) in table.file_uris()
            assert log.file_sizes([action["add"]["path"]]) == [action["add"]["size"]]


def test_the_file_scheme_makes_no_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for n, form in enumerate(("file:", "file://")):
        write_deltalake(f"{form}{tmp_path}/my%20t{n}", pa.table({"k": [1]}))
        assert deltalake.DeltaTable(tmp_path / f"my t{n}").version() == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["my t0", "my t1"]


def test_file_systems_of_object_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    filesystem, inside = filesystem_of("s3a://bucket/a b/c%20d")
    assert (filesystem.type_name, inside) == ("s3", "bucket/a b/c%20d")
