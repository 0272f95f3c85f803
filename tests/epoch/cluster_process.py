"""Scripts on a cluster: ``python cluster_process.py MASTER WAREHOUSE PLACE STATEMENTS …``.

When a script first comes to its PLACE, a worker is killed with its executors: the one that holds most of what executors hold.
After it the next script waits until there are two executors again.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from relstate_dagster.cli.entry import leave
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine import SparkSettings, create_session, failpoints
from relstate_dagster.jobs.script import ScriptSession

#: Spark learns of blocks that executors hold a little later.
_KNOWN_BY_THEN_SECONDS = 2.0


def _until_there_are_two(spark: SparkSession) -> None:
    deadline = time.monotonic() + 120
    while len(spark._jsc.sc().statusTracker().getExecutorInfos()) < 3:  # the driver is one of them
        assert time.monotonic() < deadline, "there are no two executors"
        time.sleep(0.2)


def _kill_a_worker(spark: SparkSession) -> None:
    """Kill the process group of a worker; an executor is in that of the worker that has started it."""
    time.sleep(_KNOWN_BY_THEN_SECONDS)
    executors = spark._jsc.sc().statusStore().executorList(True)
    known = [executors.apply(n) for n in range(executors.size()) if executors.apply(n).id() != "driver"]
    most = max(known, key=lambda executor: executor.rddBlocks()).id()
    wanted = f"--executor-id\0{most}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        command = process.joinpath("cmdline").read_bytes() if process.joinpath("cmdline").exists() else b""
        if wanted in command and spark.sparkContext.applicationId.encode() in command:
            os.killpg(os.getpgid(int(process.name)), signal.SIGKILL)
            return
    raise LookupError(f"no process of executor {most}")


def main() -> int:
    master, root, *scripts = sys.argv[1:]
    conf = {
        "spark.cores.max": "2",
        "spark.executor.memory": "600m",
        "spark.task.maxFailures": "4",
        "spark.executor.defaultJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
    }
    spark = create_session(SparkSettings(master=master, driver_memory="1g", shuffle_partitions=2, conf=conf))
    session = ScriptSession(spark, Warehouse(root))
    for place, statements in zip(scripts[::2], scripts[1::2], strict=True):
        _until_there_are_two(spark)
        if code := _run(spark, session, place, statements):
            return code
    return 0


def _run(spark: SparkSession, session: ScriptSession, place: str, statements: str) -> int:
    killed: list[str] = []

    def reached(now: str) -> None:
        if now == place and not killed:
            killed.append(now)
            _kill_a_worker(spark)

    failpoints.reached = reached
    for result in session.run(statements):
        if isinstance(result, tuple):
            sys.stdout.write(f"{type(result[1]).__name__}: {result[1]}\n")
            return 3
        if result.columns is not None:
            sys.stdout.write(f"{sorted(result.rows, key=str)}\n")
    sys.stdout.write(f"killed {killed}\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    leave(main())
