"""A standalone Spark cluster on loopback: a master and workers, each a process of its own with its executors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from relstate_dagster.jobs.engine.java import find_java, spark_java_home
from tests.processes import free_port

_HOME = Path(pyspark.__file__).parent
_STARTS_WITHIN_SECONDS = 240


class Cluster:
    """Where the master is, and its workers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._web = free_port(), free_port()
        self.master = f"spark://127.0.0.1:{self._port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, workers: int) -> None:
        self._launch("master.Master", "--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._web))
        self._wait_for(0)
        for _ in range(workers):
            self.add_worker()
        self._wait_for(workers)

    def add_worker(self) -> None:
        self._launch(
            "worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0",
            "--work-dir", str(self._folder / f"work-{len(self._processes)}"), self.master,
        )  # fmt: skip

    def worker_groups(self) -> list[int]:
        """The process groups of living workers, their executors included."""
        return [process.pid for process in self._processes[1:] if process.poll() is None]

    def stop(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _launch(self, what: str, *arguments: str) -> None:
        java = spark_java_home(find_java()) / "bin" / "java"
        options = [
            *os.environ.get("SPARK_SUBMIT_OPTS", "").split(),
            "-Xmx512m",
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
        ]
        log = (self._folder / f"{what}-{len(self._processes)}.log").open("wb")
        self._processes.append(
            subprocess.Popen(
                [str(java), *options, "-cp", f"{_HOME}/jars/*", f"org.apache.spark.deploy.{what}", *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"},
                start_new_session=True,
            )
        )

    def _wait_for(self, workers: int) -> None:
        deadline = time.monotonic() + _STARTS_WITHIN_SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=5) as answer:
                    if json.load(answer)["aliveworkers"] == workers:
                        return
            except (OSError, ValueError):
                pass  # not there yet, or still another process's at this port
            assert time.monotonic() < deadline, f"the cluster has no {workers} workers"
            time.sleep(0.3)


@contextmanager
def running(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """A cluster for as long as it is needed."""
    cluster = Cluster(folder)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()
