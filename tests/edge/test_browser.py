"""Dagster's UI, opened in a real headless Chromium: the demo's assets, and runs that are terminated."""

from __future__ import annotations

import contextlib
import shutil
import time

import pytest
from playwright.sync_api import sync_playwright

from benchmarks.dagster_dev import Runs, dagster_dev
from relstate_dagster.jobs.api import EpochRunner, Warehouse, sync_project
from relstate_dagster.jobs.catalog.claims import Claims
from relstate_dagster.jobs.declare import load_project

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium():
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert found, "no Chromium on this machine: install Debian's package chromium (.ci/run does)"
    return found


@contextlib.contextmanager
def opened_page(**viewport):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), headless=True, args=FLAGS)
        yield browser.new_page(viewport=viewport)
        browser.close()


@pytest.mark.browser
def test_asset_graph_is_shown(tmp_path):
    with dagster_dev(tmp_path) as (ui, _), opened_page(width=1800, height=1000) as page:
        problems = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        # The graph of everything that is computed from flights fits itself to the window; names are drawn only when visible.
        page.goto(f"{ui}/assets/flights?view=lineage&lineageScope=downstream&lineageDepth=3", wait_until="domcontentloaded")
        for name in ("flights", "flight_details", "routes_flown", "fleet_use", "worst_delays"):
            page.get_by_text(name, exact=True).first.wait_for(timeout=180_000)
        screenshot = tmp_path / "asset-graph.png"
        page.screenshot(path=screenshot)
        page.goto(f"{ui}/assets/flight_details", wait_until="domcontentloaded")
        page.get_by_text("Each flight with its airline, destination and plane").first.wait_for(timeout=180_000)
        page.get_by_text("delta_versions", exact=True).first.wait_for(timeout=180_000)
    assert not problems
    assert screenshot.stat().st_size > 20_000


def picture_of_the_plan(page, address, name):
    """The image that the UI shows of the newest epoch of a view."""
    page.goto(f"{address}/assets/{name}?view=events", wait_until="domcontentloaded")
    row = page.get_by_role("row").filter(has=page.get_by_text("picture", exact=True)).last
    row.get_by_text("Show Markdown").click(timeout=180_000)
    image = page.get_by_role("dialog").get_by_role("img", name="plan of the view")
    image.wait_for(timeout=180_000)
    return image


# ------------------------------------------------------------------------------------------------------------- Terminate

SLOW = """
CREATE TABLE t (k BIGINT, PRIMARY KEY (k));
CREATE MATERIALIZED VIEW quick AS SELECT count(*) AS n FROM t;
CREATE MATERIALIZED VIEW slow AS SELECT count(*) AS n FROM t a JOIN t b ON a.k % 7 <> b.k % 11;
"""
#: From the click to the end of the run.
TERMINATES_IN_SECONDS = 20


class ClickedRuns(Runs):
    """Runs that are asked for, and ended, by clicks."""

    def __init__(self, address, page):
        super().__init__(address)
        self.page = page

    def materialize(self, name):
        """Click Materialize on an asset's page; the id of the new run."""
        known = set(self.all())
        self.page.goto(f"{self.address}/assets/{name}", wait_until="domcontentloaded")
        self.page.get_by_role("button", name="Materialize").first.click(timeout=180_000)
        return self.until(lambda: next(iter(set(self.all()) - known), None))

    def terminate(self, run_id):
        """Click Terminate on a run's page, and once more where the UI asks; seconds until the run has ended."""
        self.page.goto(f"{self.address}/runs/{run_id}", wait_until="domcontentloaded")
        self.page.get_by_role("button", name="Terminate").first.click(timeout=180_000)
        self.page.get_by_role("dialog").get_by_role("button", name="Terminate").click(timeout=180_000)
        started = time.monotonic()
        self.until(lambda: self.all()[run_id] not in ("STARTING", "STARTED", "CANCELING"))
        return time.monotonic() - started


@pytest.mark.browser
def test_a_run_that_is_terminated_ends_within_seconds_and_the_next_one_repairs_it(spark, tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "views.sql").write_text(SLOW)
    warehouse = Warehouse(tmp_path / "warehouse")
    sync_project(spark, warehouse, load_project(tmp_path / "project"))
    table = f"delta.`{warehouse.root}/sources/t`"
    spark.sql(f"INSERT INTO {table} SELECT id FROM range(400000)")
    with (
        dagster_dev(tmp_path, RELSTATE_PROJECT=str(tmp_path / "project")) as (address, _),
        opened_page(width=1600, height=900) as page,
    ):
        runs = ClickedRuns(address, page)
        # While it waits for another run, and says for which.
        with Claims(warehouse, "the-other-run", "bringing up to date") as other:
            other.take(["quick"])
            waiting = runs.materialize("quick")
            runs.until_said(waiting, "(run the-other-run), which is bringing up to date quick")
            assert runs.terminate(waiting) < TERMINATES_IN_SECONDS
            assert runs.all()[waiting] == "CANCELED"
        # Now nothing is in its way, and its plan can be looked at.
        computed = runs.materialize("quick")
        runs.until(lambda: runs.all()[computed] == "SUCCESS")
        picture = picture_of_the_plan(page, address, "quick")
        assert picture.evaluate("image => image.complete && image.naturalWidth > 200")
        # While Spark computes, which it would for minutes.
        computing = runs.materialize("slow")
        runs.until_said(computing, "slow: built to epoch")
        time.sleep(3)
        assert runs.terminate(computing) < TERMINATES_IN_SECONDS
        assert runs.all()[computing] == "CANCELED"
        assert not [line for line in runs.log_lines(computing) if "Traceback" in line]
    state = warehouse.read()
    assert [claim.views for claim in state.claims.values()] == [("slow",)], "its epoch is left for the next run"
    spark.sql(f"DELETE FROM {table} WHERE k >= 100")
    list(EpochRunner(spark, warehouse).run())
    assert all(report.equal for report in EpochRunner(spark, warehouse).verify())
    assert not warehouse.read().claims
