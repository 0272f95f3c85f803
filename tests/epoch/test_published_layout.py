"""CLUSTER BY, PARTITIONED BY and comments of a view reach its published table, and rows stay right."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner
from relstate_dagster.jobs.declare import ViewDeclaration, parse_text
from relstate_dagster.jobs.declare.model import ViewDeclaration as View
from relstate_dagster.state_lib.errors import DeclarationError, StateError
from tests.epoch.scripts import Script
from tests.sizes import changed_sizes

_TABLES = """
CREATE TABLE t (k INT, g STRING, v INT, PRIMARY KEY (k));
INSERT INTO t VALUES (1, 'a b', 10), (2, NULL, 20), (3, 'ü/%41', 30), (4, 'a b', 40);
"""
_HISTORY = (
    "UPDATE t SET v = v + 1 WHERE k = 1",
    "UPDATE t SET g = 'other' WHERE k IN (2, 3)",
    "DELETE FROM t WHERE k = 4; INSERT INTO t VALUES (5, ' ', 5)",
)


def _live(script: Script) -> None:
    for change in _HISTORY:
        script.run(f"{change}; REFRESH; VERIFY")


def _detail(spark: SparkSession, script: Script, view: str) -> dict:
    return spark.sql(f"DESCRIBE DETAIL delta.`{script.warehouse.target(view).path}`").first().asDict()


def test_a_partitioned_view(spark: SparkSession, script: Script) -> None:
    script.begin(_TABLES)
    script.run("CREATE MATERIALIZED VIEW p (g, k COMMENT 'the key', v) PARTITIONED BY (g) AS SELECT g, k, v FROM t")
    script.run("CREATE MATERIALIZED VIEW s PARTITIONED BY (n) AS SELECT g, sum(v) AS s, count(*) AS n FROM t GROUP BY g")
    assert _detail(spark, script, "p")["partitionColumns"] == ["g"]
    _live(script)
    list(EpochRunner(spark, script.warehouse).run(full_refresh=["p", "s"]))
    script.run("VERIFY; UPDATE t SET v = 0; REFRESH; VERIFY")
    (comment,) = [
        f.metadata.get("comment") for f in DeltaTable(script.warehouse.target("p").path).schema().fields if f.name == "k"
    ]
    assert comment == "the key"
    assert _detail(spark, script, "s")["partitionColumns"] == ["n"]


@pytest.mark.parametrize("rebuilt", [False, True])
def test_an_empty_text_is_no_partition(spark: SparkSession, script: Script, rebuilt: bool) -> None:
    script.begin(_TABLES)
    script.run("CREATE MATERIALIZED VIEW p PARTITIONED BY (g) AS SELECT g, k, v FROM t")
    script.run("INSERT INTO t VALUES (9, '', 9)")
    with pytest.raises(StateError, match=r"a row has an empty text in g, .* use CLUSTER BY \(g\)"):
        list(EpochRunner(spark, script.warehouse).run(full_refresh=["p"] if rebuilt else []))
    script.run("DELETE FROM t WHERE k = 9; REFRESH; VERIFY")


def test_a_clustered_view_with_comments(spark: SparkSession, script: Script) -> None:
    script.begin(_TABLES)
    script.run(
        "CREATE MATERIALIZED VIEW c (`name` COMMENT 'who''s it', total) COMMENT 'all of it' CLUSTER BY (name) "
        "AS SELECT g, sum(v) FROM t GROUP BY g"
    )
    detail = _detail(spark, script, "c")
    assert (detail["clusteringColumns"], detail["description"]) == (["name"], "all of it")
    _live(script)
    list(EpochRunner(spark, script.warehouse).run(full_refresh=["c"]))
    columns = DeltaTable(script.warehouse.target("c").path).schema().fields
    assert {f.name: f.metadata.get("comment") for f in columns if f.name != "_key"} == {"name": "who's it", "total": None}
    assert _detail(spark, script, "c")["clusteringColumns"] == ["name"]


def test_what_spark_has_written_is_merged_into(script: Script) -> None:
    """Spark and delta-rs escape the names of folders in their own ways: delta-rs did not remove a file of Spark's."""
    script.begin(_TABLES)
    with changed_sizes(driver_change_bytes=0, driver_backfill_bytes=0, driver_commit_bytes=0, driver_commit_rows=0):
        script.run("CREATE MATERIALIZED VIEW v PARTITIONED BY (g) AS SELECT g, k, v FROM t")
    _live(script)


def test_what_others_have_written_is_put_back(spark: SparkSession, script: Script) -> None:
    """Also in folders with letters that are not ASCII: delta-rs would not remove a file of Spark's there."""
    script.begin(_TABLES)
    script.run(
        "CREATE MATERIALIZED VIEW v PARTITIONED BY (g) TBLPROPERTIES ('publish.on_change' = 'restore') AS SELECT g, k, v FROM t"
    )
    path = script.warehouse.target("v").path
    spark.sql(f"INSERT INTO delta.`{path}` SELECT 'größer', 9, 9, unhex('00')")
    _live(script)


def test_another_layout_is_a_rebuild_and_changes_over_when_it_is_done(spark: SparkSession, script: Script) -> None:
    script.begin(_TABLES)
    script.run("CREATE MATERIALIZED VIEW v AS SELECT g, k, v FROM t")
    before = script.rows("SELECT * FROM v")
    (edited,) = parse_text("CREATE MATERIALIZED VIEW v (g COMMENT 'new', k, v) PARTITIONED BY (g) AS SELECT g, k, v FROM t")
    assert isinstance(edited, View)
    script.session._registry.declare([edited])
    assert script.rows("SELECT * FROM v") == before
    _live(script)
    assert _detail(spark, script, "v")["partitionColumns"] == ["g"]
    script.session._registry.declare([ViewDeclaration("v", edited.query, cluster_by=("k",))])
    script.run("REFRESH; VERIFY")
    assert _detail(spark, script, "v")["clusteringColumns"] == ["k"]


def test_a_layout_in_another_case_is_the_same(script: Script) -> None:
    script.begin(_TABLES)
    (view,) = parse_text("CREATE MATERIALIZED VIEW v (g COMMENT 'x', k, v) PARTITIONED BY (G) AS SELECT g, k, v FROM t")
    script.session._registry.declare([view])
    script.run("REFRESH")
    before = script.warehouse.read()
    assert before.views["v"].layout.partitioned_by == ("g",)
    assert script.session._registry.declare([view]) == before, "declared again, nothing is rebuilt"


@pytest.mark.parametrize(
    ("clauses", "says"),
    [
        ("CLUSTER BY (nope)", "CLUSTER BY names nope, which is no column of it; there are g, v"),
        ("PARTITIONED BY (g, v)", "PARTITIONED BY names all columns"),
        ("PARTITIONED BY (g) CLUSTER BY (v)", "exclude each other"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(script: Script, clauses: str, says: str) -> None:
    script.begin(_TABLES)
    with pytest.raises(DeclarationError, match=says):
        raise script.error(f"CREATE MATERIALIZED VIEW v {clauses} AS SELECT g, v FROM t")


def test_comments_on_columns_that_a_view_does_not_have(script: Script) -> None:
    script.begin(_TABLES)
    declare = script.session._registry.declare
    with pytest.raises(DeclarationError, match="the column list names nope, which is no column of it; there are G, v"):
        declare([View("v", "SELECT g AS G, v FROM t", column_comments={"g": "group", "nope": "is not there"})])
    view = View("v", "SELECT g AS G, v FROM t", column_comments={"v": "value"}, described_columns={"g": "group", "nope": "no"})
    for _ in range(2):
        declare([view])
        assert script.warehouse.read().views["v"].layout.column_comments == {"G": "group", "v": "value"}
