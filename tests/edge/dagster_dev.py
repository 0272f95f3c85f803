"""A real `dagster dev`, and its runs as its web server knows them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import relstate_dagster

ROOT = Path(relstate_dagster.__file__).parents[1]
START_SECONDS = 90


@contextlib.contextmanager
def dagster_dev(folder, **environment):
    """`dagster dev` on loopback with the instance settings that `make dev` uses; gives its address and its process group."""
    home = folder / "home"
    home.mkdir()
    shutil.copy(ROOT / "relstate_dagster" / "dagster.yaml", home)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "DAGSTER_HOME": str(home), "RELSTATE_WAREHOUSE": str(folder / "warehouse"), **environment}
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(ROOT / "workspace.yaml"), "-h", "127.0.0.1", "-p", str(port)]
    with (folder / "log").open("w+") as log:
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
            yield address, server.pid
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


class Runs:
    """Runs of a `dagster dev`, as its web server knows them."""

    def __init__(self, address):
        self.address = address

    def asked(self, query, **variables):
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.address}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)["data"]

    def all(self):
        found = self.asked("{runsOrError {... on Runs {results {runId status}}}}")["runsOrError"]["results"]
        return {run["runId"]: run["status"] for run in found}

    def said(self, run_id):
        query = "... on EventConnection {events {... on MessageEvent {message}}}"
        events = self.asked(f'{{logsForRun(runId: "{run_id}") {{{query}}}}}')["logsForRun"]["events"]
        return [event["message"] for event in events if event]

    def until_said(self, run_id, words):
        def has_said():
            assert self.all()[run_id] not in ("FAILURE", "SUCCESS", "CANCELED"), self.said(run_id)
            return any(words in line for line in self.said(run_id))

        try:
            self.until(has_said, 60)
        except AssertionError:
            raise AssertionError(f"{words!r} is not among {self.said(run_id)}") from None

    @staticmethod
    def until(condition, seconds=180):
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, condition
            time.sleep(0.3)
        return found
