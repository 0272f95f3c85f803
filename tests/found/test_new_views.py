"""A new view shows rows that came before it was created."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, sync_project
from relstate_dagster.jobs.declare import build_project, parse_text
from tests.epoch.scripts import Script

_SOURCES = """
CREATE TABLE u (k INT, v INT, PRIMARY KEY (k)) TBLPROPERTIES ('source.kind' = 'upsert');
CREATE TABLE f (k INT, v INT) USING csv LOCATION '{folder}';
CREATE TABLE g (k INT, v INT, at INT, PRIMARY KEY (k)) USING csv OPTIONS (header 'false') LOCATION '{keyed}'
  TBLPROPERTIES ('source.kind' = 'upsert', 'source.order' = 'at');
CREATE MATERIALIZED VIEW a AS SELECT sum(v) AS v FROM f;
"""
_NEW = """
CREATE MATERIALIZED VIEW of_u AS SELECT sum(v) AS v FROM u;
CREATE MATERIALIZED VIEW of_f AS SELECT sum(v) AS v FROM f;
CREATE MATERIALIZED VIEW of_g AS SELECT sum(v) AS v FROM g;
"""


def _sources(tmp_path: Path) -> str:
    for name in ("f", "g"):
        (tmp_path / name).mkdir()
    (tmp_path / "f" / "1.csv").write_text("1,1\n")
    (tmp_path / "g" / "1.csv").write_text("1,1,1\n")
    return _SOURCES.format(folder=tmp_path / "f", keyed=tmp_path / "g")


def _more(script: Script, tmp_path: Path) -> None:
    script.run("INSERT INTO u VALUES (1, 10)")
    (tmp_path / "f" / "2.csv").write_text("2,20\n")
    (tmp_path / "g" / "2.csv").write_text("1,30,2\n")


def test_in_a_script(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "wh")
    script.run(_sources(tmp_path))
    _more(script, tmp_path)
    script.run(_NEW)
    assert [script.rows(f"SELECT * FROM of_{name}") for name in "ufg"] == [[(10,)], [(21,)], [(30,)]]
    script.run("REFRESH")
    script.verify()


def test_by_a_run_of_the_new_view_alone(spark: SparkSession, tmp_path: Path) -> None:
    script, sources = Script(spark, tmp_path / "wh"), _sources(tmp_path)
    sync_project(spark, script.warehouse, build_project(parse_text(sources)))
    list(EpochRunner(spark, script.warehouse).run())
    _more(script, tmp_path)
    sync_project(spark, script.warehouse, build_project(parse_text(sources + _NEW)))
    reports = list(EpochRunner(spark, script.warehouse).run(["of_u", "of_f", "of_g"]))
    assert {report.view for report in reports} == {"u", "g", "of_u", "of_f", "of_g"}
    assert len({report.epoch for report in reports}) == 1
    assert [script.rows(f"SELECT * FROM of_{name}") for name in "ufg"] == [[(10,)], [(21,)], [(30,)]]
