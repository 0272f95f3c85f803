"""An S3-compatible server on loopback, with conditional put, and a Spark session that reaches it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from relstate_dagster.state_lib.lake.storage import spark_settings
from tests.processes import free_port

_STARTS_WITHIN_SECONDS = 180
#: Moto looks whether there is an object and puts it then, in threads. A store does both at once.
_SERVER = """
import sys, threading
from moto.s3.responses import S3Response
from moto.server import main
put, one_at_a_time = S3Response.put_object, threading.Lock()
def put_object(self):
    with one_at_a_time:
        return put(self)
S3Response.put_object = put_object
main(sys.argv[1:])
"""


@dataclass(frozen=True)
class Served:
    """A server's address, and its one bucket, whose name no other server has.

    Hadoop keeps the file system of a bucket, with the endpoint that it had at first.
    """

    endpoint: str
    bucket: str


@contextmanager
def served(log: Path) -> Iterator[Served]:
    """A server with one bucket, and the environment by which everything finds it.

    Requests go to a file.
    """
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with log.open("w") as out:
        server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, "-H", "127.0.0.1", "-p", str(port)], stdout=out, stderr=subprocess.STDOUT
        )
    given = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    before = {name: os.environ.get(name) for name in given}
    try:
        store = Served(endpoint, f"relstate-tests-{uuid.uuid4().hex[:8]}")
        _make_bucket(store)
        os.environ.update(given)
        yield store
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        server.kill()
        server.wait()


def reach(spark: SparkSession) -> None:
    """Tell a session that has started with S3's jars where the store is."""
    configuration = spark._jsc.hadoopConfiguration()
    for name, value in spark_settings("s3").items():
        configuration.set(name.removeprefix("spark.hadoop."), value)


def _make_bucket(store: Served) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN_SECONDS
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(f"{store.endpoint}/{store.bucket}", method="PUT")).close()
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
