"""A Spark Connect server on loopback, with Delta and none of our settings."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from relstate_dagster.jobs.engine.jars import delta_jars
from relstate_dagster.jobs.engine.java import find_java, spark_java_home
from tests.processes import free_port, until

_HOME = Path(pyspark.__file__).parent
_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
}


class ConnectServer:
    """Where it listens, and its process."""

    def __init__(self, address: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.address = address
        self.log = log
        self._process = process

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        if self.is_running:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def connect_server(folder: Path) -> Iterator[ConnectServer]:
    """Start a server, and kill it at the end."""
    port = free_port()
    settings = {
        **_SETTINGS,
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.jars": ",".join(map(str, delta_jars())),
    }
    log = folder / "connect.log"
    with log.open("wb") as written:
        process = subprocess.Popen(
            [
                str(_HOME / "bin" / "spark-submit"),
                *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
                *("--master", "local[2]", "--driver-memory", "2g"),
                *(part for name, setting in settings.items() for part in ("--conf", f"{name}={setting}")),
                "spark-internal",
            ],
            stdout=written,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "SPARK_HOME": str(_HOME), "JAVA_HOME": str(spark_java_home(find_java()))},
            start_new_session=True,
        )
    server = ConnectServer(f"sc://127.0.0.1:{port}", process, log)
    try:
        until(lambda: not server.is_running or "Spark Connect server started" in log.read_text(), "a Spark Connect server")
        assert server.is_running, log.read_text()
        yield server
    finally:
        server.kill()
