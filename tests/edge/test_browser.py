"""Dagster's UI on the demo, opened in a real headless Chromium."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

import relstate_dagster

ROOT = Path(relstate_dagster.__file__).parents[1]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
START_SECONDS = 90


def chromium():
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert found, "no Chromium on this machine: install Debian's package chromium (.ci/run does)"
    return found


@pytest.fixture
def ui(tmp_path):
    """`dagster dev` on loopback with the instance settings that `make dev` uses; gives its address."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(ROOT / "relstate_dagster" / "dagster.yaml", home)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "DAGSTER_HOME": str(home), "RELSTATE_WAREHOUSE": str(tmp_path / "warehouse")}
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(ROOT / "workspace.yaml"), "-h", "127.0.0.1", "-p", str(port)]
    with (tmp_path / "log").open("w+") as log:
        server = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            address = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + START_SECONDS
            while not answers(address):
                assert server.poll() is None, Path(log.name).read_text()
                assert time.monotonic() < deadline, Path(log.name).read_text()
                time.sleep(0.5)
            yield address
        finally:
            os.killpg(server.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def answers(address):
    try:
        with urllib.request.urlopen(f"{address}/server_info", timeout=2) as response:
            return response.status == 200
    except OSError:
        return False


@pytest.mark.browser
def test_asset_graph_is_shown(ui, tmp_path):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), headless=True, args=FLAGS)
        page = browser.new_page(viewport={"width": 1800, "height": 1000})
        problems = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        # The graph of everything that is computed from flights fits itself to the window; names are drawn only when visible.
        page.goto(f"{ui}/assets/flights?view=lineage&lineageScope=downstream&lineageDepth=3", wait_until="domcontentloaded")
        for name in ("flights", "flight_details", "routes_flown", "fleet_use", "worst_delays"):
            page.get_by_text(name, exact=True).first.wait_for(timeout=60_000)
        screenshot = tmp_path / "asset-graph.png"
        page.screenshot(path=screenshot)
        page.goto(f"{ui}/assets/flight_details", wait_until="domcontentloaded")
        page.get_by_text("Each flight with its airline, destination and plane").first.wait_for(timeout=60_000)
        page.get_by_text("delta_versions", exact=True).first.wait_for(timeout=60_000)
        browser.close()
    assert not problems
    assert screenshot.stat().st_size > 20_000
