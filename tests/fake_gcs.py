"""fake-gcs-server, an emulator of Google Cloud Storage, on loopback: from the PATH, or installed by Go where there is one.

It has all of the JSON interface, by which Spark and Arrow come, and part of the XML one, by which delta-rs does:
`fake_gcs_proxy.go` stands before it and adds the put and the start of a list.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from relstate_dagster.state_lib.lake.storage import spark_settings
from tests.processes import free_port

BUCKET = "warehouses"
_MODULE = "github.com/fsouza/fake-gcs-server@v1.56.1"
_PROXY = Path(__file__).with_name("fake_gcs_proxy.go")
_STARTS_WITHIN_SECONDS = 180


def _programs(folder: Path) -> tuple[str, str]:
    """The emulator and what stands before it."""
    go = shutil.which("go")
    assert go is not None, (
        "these tests need Go, which builds the emulator's proxy, and the emulator where it is not on the PATH"
    )
    emulator, proxy = shutil.which("fake-gcs-server"), str(folder / _PROXY.stem)
    if emulator is None:
        # A minute and a half the first time; then what was built is in Go's cache.
        environment = {**os.environ, "GOBIN": str(folder)}
        subprocess.run([go, "install", _MODULE], check=True, capture_output=True, timeout=600, env=environment)
        emulator = str(folder / "fake-gcs-server")
    subprocess.run([go, "build", "-o", proxy, str(_PROXY)], check=True, capture_output=True, timeout=300)
    return emulator, proxy


@contextmanager
def served(folder: Path) -> Iterator[None]:
    """A server with one bucket, and the environment by which everything finds it."""
    emulator, proxy = _programs(folder)
    inner, outer = free_port(), free_port()
    commands = [
        [emulator, "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(inner), "-log-level", "error"],
        [proxy, f"127.0.0.1:{outer}", f"127.0.0.1:{inner}"],
    ]
    # The emulator knows its own requests by the host, which is the proxy's.
    commands[0] += ["-public-host", f"127.0.0.1:{outer}"]
    before = os.environ.get("STORAGE_EMULATOR_HOST")
    with ExitStack() as started:
        for command in commands:
            server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            started.callback(server.wait)
            started.callback(server.kill)
        os.environ["STORAGE_EMULATOR_HOST"] = f"http://127.0.0.1:{outer}"
        try:
            _make_bucket(outer)
            yield
        finally:
            os.environ.pop("STORAGE_EMULATOR_HOST")
            os.environ |= {} if before is None else {"STORAGE_EMULATOR_HOST": before}


def reach(spark: SparkSession) -> None:
    """Tell a session that has started with Google's jars where the store is."""
    configuration = spark._jsc.hadoopConfiguration()
    for name, value in spark_settings("gcs").items():
        configuration.set(name.removeprefix("spark.hadoop."), value)


def _make_bucket(port: int) -> None:
    body = json.dumps({"name": BUCKET}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/storage/v1/b", body, {"Content-Type": "application/json"}, method="POST"
    )
    deadline = time.monotonic() + _STARTS_WITHIN_SECONDS
    while True:
        try:
            urllib.request.urlopen(request).close()
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
