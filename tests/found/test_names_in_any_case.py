"""Names in any case outside of scripts: in projects, Python and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import (
    Action,
    EpochRunner,
    Registry,
    SourceEntry,
    Warehouse,
    idle_reports,
    preview_run,
    snapshot,
    sync_project,
    why,
)
from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.state_lib.errors import DeclarationError
from tests.epoch.scripts import Script

_PROJECT = """
CREATE TABLE Rows (Id INT, Grp STRING, V INT, PRIMARY KEY (ID)) TBLPROPERTIES ('index.columns' = 'GRP');
CREATE MATERIALIZED VIEW Sums AS SELECT grp AS Grp, sum(v) AS Total FROM rows GROUP BY GRP;
CREATE MATERIALIZED VIEW Over AS SELECT count(*) AS n FROM SUMS;
"""


def test_a_project(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "wh")
    home = script.warehouse
    project = build_project(parse_text(_PROJECT))
    state = sync_project(spark, home, project)
    assert state.sources["Rows"].primary_key == ("Id",)
    assert state.sources["Rows"].indexes == ("Grp",)
    script.run("INSERT INTO rows VALUES (1, 'a', 10), (2, 'b', 20)")
    runner = EpochRunner(spark, home)
    assert [report.view for report in runner.run(["SUMS", "over"])] == ["Sums", "Over"]
    assert [report.view for report in runner.run(full_refresh=["sums"], until_version={"ROWS": 1})] == ["Sums", "Over"]
    assert all(report.equal for report in runner.verify(["oVER", "sums"]))
    assert list(snapshot(home, ["SUMS"]).views) == ["Sums"]
    for key in ("GRP='a'", {"grp": "a"}):
        assert why(spark, home, "sums", key).row == {"Grp": "a", "Total": 10}
    # Read again with the keys and indexes in another case, it is the same project.
    again = build_project(parse_text(_PROJECT.replace("PRIMARY KEY (ID)", "PRIMARY KEY (id)").replace("'GRP'", "'grp'")))
    assert [found.action for found in preview_run(home, again, most_tasks=2)] == [Action.NOTHING] * 2
    assert sync_project(spark, home, again).rebuilds == {}
    with pytest.raises(DeclarationError, match="there is a source named Rows already"):
        sync_project(spark, home, build_project(parse_text("CREATE TABLE rows (id INT)")))
    assert not (tmp_path / "wh" / "sources" / "rows").exists()
    with pytest.raises(DeclarationError, match="case does not tell names apart"):
        build_project(parse_text(f"{_PROJECT}; CREATE TABLE OVER (a INT)"))
    registry = Registry(spark, home)
    registry.drop("over", "view")
    registry.drop("SUMS", "view")
    registry.drop("ROWS", "source")
    assert not home.read().sources


def test_nothing_to_do_is_found_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "wh")
    project = build_project(parse_text(_PROJECT.replace(" TBLPROPERTIES ('index.columns' = 'GRP')", "")))
    sync_project(spark, script.warehouse, project)
    list(EpochRunner(spark, script.warehouse).run())
    reports = idle_reports(Warehouse(script.warehouse.root), project, ["sums", "OVER"])
    assert reports is not None
    assert [report.view for report in reports] == ["Sums", "Over"]


def test_tables_that_are_there_already(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "there")
    spark.sql(f"CREATE TABLE delta.`{path}` (Id INT, V INT) USING delta")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 1)")
    script = Script(spark, tmp_path / "wh")
    script.run(
        f"CREATE TABLE There (PRIMARY KEY (ID)) LOCATION '{path}'; CREATE MATERIALIZED VIEW v AS SELECT id, v FROM there"
    )
    assert script.warehouse.read().sources["There"].primary_key == ("Id",)
    Registry(spark, script.warehouse).add_source(SourceEntry("Again", path, ("iD",), indexes=("V", "v")))
    again = script.warehouse.read().sources["Again"]
    assert (again.primary_key, again.indexes) == (("Id",), ("V",))
    with pytest.raises(DeclarationError, match="there is a source named There already"):
        Registry(spark, script.warehouse).add_source(SourceEntry("THERE", path))
    script.verify()


def test_a_table_of_the_warehouse_that_no_file_declares(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "wh" / "sources" / "Found"
    spark.sql(f"CREATE TABLE delta.`{path}` (Id INT) USING delta")
    home = Warehouse(tmp_path / "wh")
    project = build_project(parse_text("CREATE MATERIALIZED VIEW v AS SELECT ID FROM FOUND"))
    assert sync_project(spark, home, project).sources["FOUND"].path == str(path)
    assert [report.view for report in EpochRunner(spark, home).run()] == ["v"]
