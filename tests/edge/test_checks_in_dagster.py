"""Declared checks in Dagster: what a run makes, shows and holds back."""

from __future__ import annotations

import pyarrow as pa
import pytest
from dagster import (
    AssetCheckKey,
    AssetCheckSeverity,
    AssetKey,
    AssetSelection,
    DagsterInstance,
    Definitions,
    asset,
    define_asset_job,
)
from typer.testing import CliRunner

from relstate_dagster.assets.specs import project_assets
from relstate_dagster.assets.views import VERIFY_TAG
from relstate_dagster.cli import app
from relstate_dagster.code_location import build_definitions
from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.jobs.targets.delta_writer import DeltaWriter
from relstate_dagster.state_lib.errors import DeclarationError

_SQL = """
CREATE TABLE orders (id INT, customer STRING, cents BIGINT, PRIMARY KEY (id));
CREATE MATERIALIZED VIEW totals (CONSTRAINT positive EXPECT (total >= 0) ON VIOLATION FAIL UPDATE,
    CONSTRAINT named EXPECT (customer IS NOT NULL))
TBLPROPERTIES ('check.few.rows' = '..100')
AS SELECT customer, sum(cents) AS total FROM orders GROUP BY customer;
"""


class Location:
    """A code location with an asset below the view, and runs of both."""

    def __init__(self, folder, instance):
        self.instance, self.warehouse, self.written = instance, folder / "warehouse", []
        (folder / "project").mkdir()
        (folder / "project" / "views.sql").write_text(_SQL)

        @asset(deps=["totals"])
        def report():
            self.written.append("report")

        everything = AssetSelection.assets("totals", report)
        definitions = Definitions.merge(
            build_definitions(folder / "project", warehouse=self.warehouse),
            Definitions(assets=[report], jobs=[define_asset_job("everything", everything)]),
        )
        self.repository = definitions.get_repository_def()

    def run(self, job="everything", *, tags=None, selection=None):
        """The run's success, whether the asset below was computed, and what each check found."""
        self.written.clear()
        done = self.repository.get_job(job).execute_in_process(
            instance=self.instance, raise_on_error=False, tags=tags or {}, asset_selection=selection
        )
        self.errors = [str(e.step_failure_data.error) for e in done.all_events if e.is_step_failure]
        return done.success, bool(self.written), {c.check_name: c for c in done.get_asset_check_evaluations()}


def test_a_blocking_check_holds_back_what_is_below_and_shows_rows(spark, tmp_path):
    with DagsterInstance.ephemeral() as instance:
        location = Location(tmp_path, instance)
        orders = f"delta.`{location.warehouse}/sources/orders`"
        success, written, found = location.run()
        assert (success, written, set(found)) == (True, True, {"positive", "named", "few", "stream_key_unique"})
        assert all(check.passed for check in found.values())
        spark.sql(f"INSERT INTO {orders} VALUES (1, 'a|b', -5), (2, NULL, -6), (3, 'bob', 7)")
        success, written, found = location.run()
        assert (success, written) == (False, False)
        assert "blocking asset check failed" in location.errors[0]
        positive, named = found["positive"], found["named"]
        assert (positive.passed, positive.severity, positive.blocking) == (False, AssetCheckSeverity.ERROR, True)
        assert (named.passed, named.severity, named.blocking) == (False, AssetCheckSeverity.WARN, False)
        assert positive.metadata["failing"].value == 2
        table = positive.metadata["some that fail"].value.splitlines()
        assert table[:2] == ["| customer | total |", "| --- | --- |"]
        assert set(table[2:]) == {"| a\\|b | -5 |", "| NULL | -6 |"}
        assert named.metadata["some that fail"].value.endswith("| NULL | -6 |")
        # Nothing has changed, so nothing is checked again, but for what blocks: nobody may go on over it.
        success, written, found = location.run()
        assert (success, written, set(found)) == (False, False, {"positive"})
        spark.sql(f"UPDATE {orders} SET cents = 1 WHERE cents < 0")
        # The command line brings it up to date: Dagster is told of rows that nobody has checked.
        arguments = ["run", "--project", str(tmp_path / "project"), "--warehouse", str(location.warehouse)]
        assert CliRunner().invoke(app, arguments).exit_code == 0
        success, written, found = location.run()
        assert (success, written, set(found)) == (True, True, {"positive"})
        assert location.run() == (True, True, {})
        # Checks alone are made whether anything has changed or not.
        few = [AssetCheckKey(AssetKey("totals"), "few")]
        job = location.repository.get_job("refresh_views")
        done = job.get_subset(asset_check_selection=set(few), asset_selection=set()).execute_in_process(instance=instance)
        assert [(c.check_name, c.passed) for c in done.get_asset_check_evaluations()] == [("few", True)]

        # A sample of keys is compared where the run's tag says so.
        spark.sql(f"DELETE FROM {orders} WHERE id = 3")
        _, _, found = location.run(tags={VERIFY_TAG: "sample:1"})
        verified = found["matches_full_recompute"]
        assert (verified.passed, verified.metadata["sampled keys"].value) == (True, 1)
        _, _, found = location.run("verify_views")
        assert "sampled keys" not in found["matches_full_recompute"].metadata
        assert not location.run(tags={VERIFY_TAG: "sample:few"})[0]
        assert "relstate/verify = 'sample:few' is unknown" in location.errors[0]


_TWO = """
CREATE TABLE a (k INT, PRIMARY KEY (k));
CREATE TABLE b (k INT, PRIMARY KEY (k));
CREATE MATERIALIZED VIEW of_a TBLPROPERTIES ('check.few_a.rows' = '..100') AS SELECT count(*) AS n FROM a;
CREATE MATERIALIZED VIEW of_b TBLPROPERTIES ('check.few_b.rows' = '..{most}', 'check.in_a.references' = 'n IN a(k)') AS
  SELECT count(*) AS n FROM b;
"""


def test_what_has_passed_on_a_view_that_has_not_changed_is_not_made_again(spark, tmp_path):
    project, warehouse = tmp_path / "project", tmp_path / "warehouse"
    project.mkdir()

    def run(instance, most, **tags):
        (project / "views.sql").write_text(_TWO.format(most=most))
        job = build_definitions(project, warehouse=warehouse).get_repository_def().get_job("refresh_views")
        done = job.execute_in_process(instance=instance, raise_on_error=False, tags=tags)
        assert done.success
        made = {(c.asset_key.to_user_string(), c.check_name): c.passed for c in done.get_asset_check_evaluations()}
        keys = {key for key in made if key[1] == "stream_key_unique"}
        return {name: made[view, name] for view, name in made.keys() - keys}, {view for view, _ in keys}

    def insert(into, key):
        spark.sql(f"INSERT INTO delta.`{warehouse}/sources/{into}` VALUES ({key})")

    with DagsterInstance.ephemeral() as instance:
        assert run(instance, 100) == ({"few_a": True, "few_b": True, "in_a": False}, {"of_a", "of_b"})
        insert("a", 0)
        # What another table decides is looked at again, and what has failed.
        assert run(instance, 100) == ({"few_a": True, "in_a": True}, {"of_a"})
        insert("a", 1)
        assert run(instance, 0) == ({"few_a": True, "few_b": False, "in_a": True}, {"of_a"}), "it is another check now"
        insert("a", 2)
        assert run(instance, 0)[0] == {"few_a": True, "few_b": False, "in_a": True}, "it has not passed"
        insert("b", 0)
        assert run(instance, 0)[1] == {"of_b"}


def test_a_view_that_holds_a_key_twice_fails(spark, tmp_path, monkeypatch):
    with DagsterInstance.ephemeral() as instance:
        location = Location(tmp_path, instance)
        location.run()
        append = DeltaWriter.append
        monkeypatch.setattr(DeltaWriter, "append", lambda to, session, new: append(to, session, pa.concat_tables([new, new])))
        spark.sql(f"INSERT INTO delta.`{location.warehouse}/sources/orders` VALUES (1, 'bob', 7), (2, 'eve', 8)")
        unique = location.run()[2]["stream_key_unique"]
        assert (unique.passed, unique.metadata["duplicated keys"].value) == (False, 2)


def test_rows_that_differ_are_shown(spark, tmp_path):
    with DagsterInstance.ephemeral() as instance:
        location = Location(tmp_path, instance)
        location.run()
        spark.sql(f"INSERT INTO delta.`{location.warehouse}/sources/orders` VALUES (1, 'ann', 5)")
        location.run()
        # The file of the published rows is exchanged for another one's: what Delta does not see.
        view = location.warehouse / "views" / "totals"
        spark.sql(
            f"CREATE TABLE delta.`{tmp_path}/wrong` USING delta AS SELECT customer, 9L AS total, _key FROM delta.`{view}`"
        )
        (right,), (wrong,) = (list(folder.glob("*.parquet")) for folder in (view, tmp_path / "wrong"))
        right.write_bytes(wrong.read_bytes())
        success, _, found = location.run("verify_views")
        shown = {name: value.value for name, value in found["matches_full_recompute"].metadata.items()}
        assert (success, found["matches_full_recompute"].passed) == (True, False)
        assert shown["some that are missing"].endswith("| ann | 5 |")
        assert shown["some that are unexpected"].endswith("| ann | 9 |")


def test_names_that_dagster_does_not_tell_apart_are_refused():
    sql = "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('check.small.rows' = '1') AS SELECT a FROM t;"
    sql += "CREATE MATERIALIZED VIEW v_small AS SELECT a FROM t;"
    with pytest.raises(DeclarationError, match=r"p\.sql:1: v: Dagster does not tell its check small from view v_small"):
        project_assets(build_project(parse_text(sql, "p.sql")))
    with pytest.raises(DeclarationError, match="there is no kind of check 'row'"):
        project_assets(build_project(parse_text(sql.replace("rows", "row"), "p.sql")))
