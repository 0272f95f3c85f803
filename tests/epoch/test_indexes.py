"""Indexes of sources: views are the same with them, however old they are, and read less."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from relstate_dagster.assets.metadata import epoch_metadata
from relstate_dagster.jobs.registration.registry import Registry
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.sources.source_index import SourceIndex
from relstate_dagster.state_lib.errors import DeclarationError
from tests.epoch.scripts import Script
from tests.sizes import Resized

_SETUP = """
CREATE TABLE line (o INT, n INT, p INT, `a-qty` INT, note STRING, PRIMARY KEY (o, n))
  TBLPROPERTIES ('index.columns' = '{columns}');
CREATE TABLE part (p INT, name STRING, PRIMARY KEY (p));
INSERT INTO line SELECT id div 4, id % 4, id * 37 % 1000, id, 'n' || id % 50 FROM range(4000);
INSERT INTO part SELECT id, 'part' || id % 7 FROM range(1000);
CREATE MATERIALIZED VIEW sold AS
  SELECT name, sum(`a-qty`) AS qty, count(line.p) AS lines, count(*) AS n
  FROM part LEFT JOIN line ON line.p = part.p AND line.n < 3 GROUP BY name;
"""
_CHANGES = (
    "UPDATE part SET name = 'other' WHERE p IN (3, 7, 500); "
    "UPDATE line SET `a-qty` = 0, p = if(p = 74, 7, p) WHERE o < 5 OR p = 74; REFRESH",
    "UPDATE part SET name = NULL WHERE p IN (7, 37, 74); DELETE FROM line WHERE p = 37; REFRESH",
)


@pytest.fixture
def every_row_counts(resized: Resized) -> None:
    """Tables of some thousand rows are asked for their pages, and an index is worth it."""
    resized(unfiltered_rows=100)
    resized(unfiltered_rows=100)
    resized(index_page_rows=20)


def _index(script: Script, column: str = "p") -> SourceIndex:
    return SourceIndex(script.warehouse.index_path("line", column), column)


def test_views_are_the_same_however_old_the_index_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resized: Resized, every_row_counts: None
) -> None:
    read: list[str] = []
    files = SourceIndex.files.fget
    monkeypatch.setattr(SourceIndex, "files", property(lambda self: read.append(self.column) or files(self)))
    script = Script(spark, tmp_path / "warehouse")
    script.run(_SETUP.format(columns="p"))
    built = _index(script).contents
    assert built is not None
    assert (built.columns[0], set(built.columns), built.rows) == ("p", {"p", "n", "a-qty"}, 4000)
    for changes in _CHANGES:
        read.clear()
        script.run(changes)
        assert set(read) == {"p"}, "parts have changed, and their lines were looked up"
        script.verify()
    assert _index(script).contents == built, "and the changes so far were read beside it"

    resized(index_commits=1)
    resized(index_files=1)
    script.run("UPDATE part SET name = 'a' WHERE p IN (3, 7); REFRESH")
    brought = _index(script).contents
    assert brought is not None
    assert brought.version > built.version
    assert (brought.rows, brought.appended > 0) == (4000, True)
    assert len(_index(script).files.files) == 1, "small files were merged"

    resized(index_appended_share=0)
    resized(index_appended_rows=0)
    script.run("UPDATE line SET note = '' WHERE o = 1; UPDATE part SET name = 'b' WHERE p IN (3, 7); REFRESH")
    script.verify()
    built_again = _index(script).contents
    assert built_again is not None
    assert built_again.appended == 0
    assert built_again.rows == script.rows("SELECT count(*) FROM line")[0][0]


def test_an_index_that_does_not_serve_is_built_again_and_one_that_is_not_declared_is_deleted(
    spark: SparkSession, tmp_path: Path, every_row_counts: None
) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run(_SETUP.format(columns="p, note"))
    script.run(
        "CREATE MATERIALIZED VIEW noted AS SELECT note, name FROM line JOIN part ON line.p = part.p; "
        "UPDATE part SET name = 'x' WHERE p = 3; REFRESH"
    )
    script.verify()
    contents = _index(script).contents
    assert contents is not None
    assert "note" in contents.columns, "a view was added that reads more of its columns"

    shutil.rmtree(_index(script).path)
    script.run("UPDATE part SET name = 'y' WHERE p = 3; REFRESH")
    script.verify()
    assert _index(script).contents is not None

    entry = script.warehouse.read().sources["line"]
    assert entry.indexes == ("p", "note")
    Registry(spark, script.warehouse).add_source(replace(entry, indexes=("p",)))
    reports = {report.name: report for report in EpochRunner(spark, script.warehouse).vacuum()}
    assert reports["indexes"].files_deleted == 2, "the newest file, and one from before it was built again"
    assert [DeltaTable.is_deltatable(_index(script, column).path) for column in ("p", "note")] == [True, False]
    assert _index(script).contents is not None, "what VACUUM commits tells nothing of it"


def test_an_index_is_proposed_where_it_would_help(
    spark: SparkSession, tmp_path: Path, resized: Resized, every_row_counts: None
) -> None:
    resized(advised_rows=1_000)
    script = Script(spark, tmp_path / "warehouse")
    script.run(_SETUP.format(columns="n"))
    script.run("UPDATE part SET name = 'other' WHERE p IN (3, 7, 500)")
    (report,) = EpochRunner(spark, script.warehouse).run()
    assert report.advice == (
        "rows of line looked up by p: about 4,000 were read, 60 would be with 'index.columns' = 'n, p' in the source's "
        "TBLPROPERTIES",
    )
    assert "advice" in epoch_metadata(report)
    resized(advised_rows=10_000)
    script.run("UPDATE part SET name = 'another' WHERE p IN (3, 7, 500)")
    (report,) = EpochRunner(spark, script.warehouse).run()
    assert report.advice == (), "few rows are soon read"
    script.verify()


def test_an_index_by_a_column_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    error = script.error("CREATE TABLE line (o INT, PRIMARY KEY (o)) TBLPROPERTIES ('index.columns' = 'part')")
    assert isinstance(error, DeclarationError)
    assert "['part']" in str(error)
