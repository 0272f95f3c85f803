"""Functions that the user registers: in plans, in epochs, in full queries, and missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.state_lib.errors import DeclarationError, PlanError
from tests.epoch.scripts import Script

_FUNCTIONS = "tests.epoch.view_functions:register"
_TABLES = """
CREATE TABLE sale (id INT, name STRING, price DECIMAL(10,2), PRIMARY KEY (id));
CREATE TABLE letter (l STRING, w STRING);
INSERT INTO sale VALUES (1, 'ann', 10), (2, 'bob', 20), (3, 'al', 5), (4, NULL, NULL);
INSERT INTO letter VALUES ('A', 'alpha'), ('B', 'beta'), ('?', 'none');
"""
_VIEWS = {
    "projected": "SELECT id, initial(name) AS i, with_tax(price) AS p, twice(price) AS t FROM sale WHERE initial(name) <> 'B'",
    "joined": "SELECT s.id, l.w FROM sale s LEFT JOIN letter l ON initial(s.name) = l.l AND length(initial(l.w)) = 1",
    "grouped": "SELECT initial(name) AS i, count(*) AS n, max(with_tax(price + twice(1))) AS m FROM sale "
    "GROUP BY initial(name)",
    "medians": "SELECT initial(name) AS i, median_price(price) AS m FROM sale GROUP BY 1 HAVING median_price(price) > 1",
    "windows": "SELECT id, median_price(price) OVER (PARTITION BY initial(name)) AS m FROM sale",
    "inlined": "SELECT * FROM initials WHERE i > 'A'",
}


@pytest.fixture
def script(spark: SparkSession, tmp_path: Path) -> Script:
    return Script(spark, tmp_path / "warehouse", functions=_FUNCTIONS)


def test_views_that_call_them_follow_the_changes(script: Script) -> None:
    script.run(_TABLES)
    script.run("CREATE VIEW initials AS SELECT id, initial(name) AS i FROM sale")
    for name, query in _VIEWS.items():
        script.run(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    state = script.warehouse.read()
    assert {view.strategy for view in state.views.values()} == {"incremental"}, [
        (v.name, v.reason) for v in state.views.values()
    ]
    assert state.views["grouped"].functions == ("initial", "twice", "with_tax")
    assert state.views["inlined"].functions == ("initial",)
    script.verify()
    script.run("UPDATE sale SET name = 'bea', price = price + 1 WHERE id IN (1, 4); DELETE FROM sale WHERE id = 3")
    script.run("INSERT INTO sale VALUES (5, 'cy', 7), (6, 'bo', 3); DELETE FROM letter WHERE l = '?'; REFRESH")
    script.verify()
    assert script.rows("SELECT i, m FROM medians") == [("B", 11.0), ("C", 7.0)]
    # The functions are those of queries as well.
    assert script.rows("SELECT initial('x')") == [("X",)]


def test_what_has_no_incremental_form_says_so(script: Script) -> None:
    script.run(_TABLES)
    with pytest.raises(PlanError, match="non-deterministic"):
        raise script.error("CREATE MATERIALIZED VIEW v AS SELECT id, ticket(name) AS t FROM sale")
    with pytest.raises(PlanError, match="no Python aggregate \\(median_price\\) beside others"):
        raise script.error("CREATE MATERIALIZED VIEW v AS SELECT name, median_price(price), count(*) FROM sale GROUP BY name")
    script.run("CREATE MATERIALIZED VIEW v AS SELECT median_price(price) AS m FROM sale")
    assert "python-aggregate" in (script.warehouse.read().views["v"].reason or "")
    script.run("UPDATE sale SET price = 1 WHERE id = 2; REFRESH")
    script.verify()


def test_an_unknown_function_is_named_before_anything_is_written(spark: SparkSession, script: Script) -> None:
    script.run(_TABLES)
    with pytest.raises(PlanError, match=r"`initials`.*tests\.epoch\.view_functions:register does not register"):
        raise script.error("CREATE MATERIALIZED VIEW v AS SELECT initials(name) FROM sale")
    script.run(f"CREATE MATERIALIZED VIEW v AS {_VIEWS['grouped']}; INSERT INTO sale VALUES (9, 'x', 1)")
    before = script.warehouse.read()
    for functions, says in [
        (None, "view v calls initial, twice, with_tax, which no callable registers; set RELSTATE_FUNCTIONS="),
        ("tests.epoch.view_functions:register_less", "view v calls twice, with_tax, which .*register_less does not register"),
        ("tests.epoch.view_functions:fails", "the callable failed for a new session: RuntimeError: no such file"),
        ("tests.epoch.view_functions:nothing", "has no callable nothing; define nothing"),
        ("no_such_module:register", "module no_such_module cannot be imported: .*put its folder on PYTHONPATH"),
        ("view_functions", "name a callable as package.module:callable"),
    ]:
        with pytest.raises(DeclarationError, match=says):
            list(EpochRunner(spark, Warehouse(script.warehouse.root, functions)).run())
        after = script.warehouse.read()
        assert (after.epochs, after.views["v"].epochs) == (before.epochs, before.views["v"].epochs)
    script.run("REFRESH")
    script.verify()
