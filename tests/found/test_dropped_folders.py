"""No DROP deletes the rows of a declared source."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import SourceEntry
from relstate_dagster.jobs.registration.registry import Registry
from relstate_dagster.state_lib.errors import DeclarationError
from tests.epoch.scripts import Script

_BEGINNING = """
CREATE TABLE t (k INT, v INT, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 10), (2, 20);
CREATE MATERIALIZED VIEW v AS SELECT k, v FROM t
"""


@pytest.fixture
def script(spark: SparkSession, tmp_path: Path) -> Script:
    script = Script(spark, tmp_path / "wh")
    script.begin(_BEGINNING)
    return script


@pytest.mark.parametrize("location", ["{root}/views/v", "file://{root}/views/v/", "{root}/views/../views//v", "{link}/views/v"])
def test_a_view_whose_table_is_a_source_is_not_dropped(script: Script, tmp_path: Path, location: str) -> None:
    root = script.warehouse.root
    (tmp_path / "link").symlink_to(root)
    script.run(f"CREATE TABLE copy LOCATION '{location.format(root=root, link=tmp_path / 'link')}'")
    error = script.error("DROP MATERIALIZED VIEW v")
    assert "source copy has its rows in" in str(error)
    assert script.rows("SELECT k FROM copy") == [(1,), (2,)]
    script.run("INSERT INTO t VALUES (3, 30); REFRESH")
    assert script.rows("SELECT k FROM copy") == [(1,), (2,), (3,)]
    script.run("DROP TABLE copy; DROP MATERIALIZED VIEW v")
    assert not Path(root, "views", "v").exists()


def test_nor_a_view_with_the_files_of_a_source_in_its_folder(script: Script) -> None:
    folder = Path(script.warehouse.root, "views", "v", "more")
    folder.mkdir()
    (folder / "rows.csv").write_text("1\n2\n")
    script.run(f"CREATE TABLE files (k INT) USING csv LOCATION '{folder}'")
    assert "source files has its rows in" in str(script.error("DROP MATERIALIZED VIEW v"))


def test_nor_a_source_whose_table_is_another(spark: SparkSession, script: Script) -> None:
    root = script.warehouse.root
    registry = Registry(spark, script.warehouse)
    script.run("CREATE TABLE a (k INT)")
    registry.add_source(SourceEntry("b", f"{root}/sources/a"))
    with pytest.raises(DeclarationError, match="source b has its rows in"):
        registry.drop("a", "source")
    registry.drop("b", "source")
    registry.drop("a", "source")


def test_nor_where_the_source_is_declared_while_the_view_is_dropped(spark: SparkSession, script: Script) -> None:
    other, registry = Registry(spark, script.warehouse), Registry(spark, script.warehouse)
    commit = registry._commit

    def declared_meanwhile(base: object, state: object) -> object:
        other.add_source(SourceEntry("copy", f"{script.warehouse.root}/views/v"))
        return commit(base, state)  # type: ignore[arg-type]

    registry._commit = declared_meanwhile  # type: ignore[assignment, method-assign]
    with pytest.raises(DeclarationError, match="source copy has its rows in"):
        registry.drop("v", "view")
    assert script.rows("SELECT k FROM copy") == [(1,), (2,)]
