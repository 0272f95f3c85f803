"""Azurite, Microsoft's emulator of Azure Storage, on loopback: from the PATH, or installed by npm where there is one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyarrow import fs
from pyspark.sql import SparkSession

from relstate_dagster.state_lib.lake.address import filesystem_of
from relstate_dagster.state_lib.lake.storage import spark_settings
from tests.processes import free_port

ROOT = "abfs://warehouses@devstoreaccount1.dfs.core.windows.net"
_VERSION = "3.37.0"
_STARTS_WITHIN_SECONDS = 180


def _program(folder: Path) -> str:
    found = shutil.which("azurite-blob")
    if found is not None:
        return found
    npm = shutil.which("npm")
    assert npm is not None, "these tests need Azurite (azurite-blob on the PATH), or npm, which installs it"
    command = [npm, "install", f"azurite@{_VERSION}", "--no-audit", "--no-fund", "--prefix", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return str(folder / "node_modules" / ".bin" / "azurite-blob")


@contextmanager
def served(folder: Path) -> Iterator[None]:
    """A server with one container, and the environment by which everything finds it."""
    program = _program(folder)
    port = free_port()
    options = ["--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--blobPort", str(port)]
    server = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    given = {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}"}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        _make_container(port)
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ |= {} if value is None else {name: value}
        server.kill()
        server.wait()


def reach(spark: SparkSession) -> None:
    """Tell a session that has started with Azure's jars where the store is."""
    configuration = spark._jsc.hadoopConfiguration()
    for name, value in spark_settings("azure").items():
        configuration.set(name.removeprefix("spark.hadoop."), value)


def _make_container(port: int) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN_SECONDS
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            break
        assert time.monotonic() < deadline, "Azurite does not answer"
        time.sleep(0.1)
    store, _ = filesystem_of(f"{ROOT}/x")
    assert isinstance(store, fs.FileSystem)
    store.create_dir("warehouses")
