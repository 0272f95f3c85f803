"""A real `dagster dev` on loopback, and its runs, for tests and measurements."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import relstate_dagster

ROOT = Path(relstate_dagster.__file__).parents[1]
START_SECONDS = 90

_LAUNCH = """mutation($params: ExecutionParams!) {launchPipelineExecution(executionParams: $params) {
    ... on LaunchRunSuccess {run {runId}} ... on PythonError {message}}}"""
_Found = TypeVar("_Found")


@contextmanager
def dagster_dev(folder: Path, **environment: str) -> Iterator[tuple[str, int]]:
    """Address and process group of a `dagster dev`.

    With the instance settings that `make dev` uses.

    Parameters
    ----------
    folder : for its instance and its log; the warehouse is the folder ``warehouse`` in it.
    environment : of the code location besides, ``RELSTATE_PROJECT`` for one.
    """
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
            while not _answers(address):
                assert server.poll() is None, Path(log.name).read_text()
                assert time.monotonic() < deadline, Path(log.name).read_text()
                time.sleep(0.5)
            yield address, server.pid
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                server.wait(20)
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/server_info", timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


class Runs:
    """Runs of a `dagster dev`, as its web server knows them.

    Parameters
    ----------
    address : of the web server.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def asked(self, query: str, **variables: Any) -> Any:
        """The data of an answer of GraphQL."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.address}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)["data"]

    def launch(self, job: str = "refresh_views") -> str:
        """Launch a job as the UI does; the id of the run."""
        selector = {"repositoryLocationName": "relstate", "repositoryName": "__repository__", "jobName": job}
        params = {"selector": selector, "runConfigData": {}, "mode": "default"}
        return str(self.asked(_LAUNCH, params=params)["launchPipelineExecution"]["run"]["runId"])

    def all(self) -> dict[str, str]:
        """The status of each run, by its id."""
        found = self.asked("{runsOrError {... on Runs {results {runId status}}}}")["runsOrError"]["results"]
        return {run["runId"]: run["status"] for run in found}

    def ended(self, run_id: str) -> float:
        """When a run has ended, in seconds of the clock, by Dagster."""
        query = "query($run: ID!) {runOrError(runId: $run) {... on Run {endTime}}}"
        return float(self.asked(query, run=run_id)["runOrError"]["endTime"])

    def log_lines(self, run_id: str) -> list[str]:
        """The messages of a run."""
        query = "... on EventConnection {events {... on MessageEvent {message}}}"
        events = self.asked(f'{{logsForRun(runId: "{run_id}") {{{query}}}}}')["logsForRun"]["events"]
        return [event["message"] for event in events if event]

    def until_it_is(self, run_id: str, status: str) -> None:
        """Wait until a run has a status."""
        self.until(lambda: self.all()[run_id] == status)

    def until_said(self, run_id: str, words: str) -> None:
        """Wait until a run that goes on has said something."""

        def has_said() -> bool:
            assert self.all()[run_id] not in ("FAILURE", "SUCCESS", "CANCELED"), self.log_lines(run_id)
            return any(words in line for line in self.log_lines(run_id))

        try:
            self.until(has_said, 150)
        except AssertionError:
            raise AssertionError(f"{words!r} is not among {self.log_lines(run_id)}") from None

    @staticmethod
    def until(condition: Callable[[], _Found], seconds: float = 180) -> _Found:
        """Wait until something is found, and return it."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, condition
            time.sleep(0.3)
        return found
