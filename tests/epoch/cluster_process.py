"""A script on a cluster, in a process of its own: ``python cluster_process.py MASTER WAREHOUSE PLACE GROUP STATEMENTS``.

When the run first comes to PLACE (``-``: never), the process group of a worker is killed, its executors with it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from jobs import failpoints
from jobs.script import ScriptSession
from jobs.spark import SparkSettings, create_session
from jobs.warehouse import Warehouse
from relstate_dagster.cli.entry import leave

#: After the epoch has begun, its first jobs run by then.
_INTO_THE_JOBS_SECONDS = 1.0


def main() -> int:
    master, root, place, group, statements = sys.argv[1:]
    killed: list[str] = []

    def kill() -> None:
        os.killpg(int(group), signal.SIGKILL)

    def reached(now: str) -> None:
        if now == place and not killed:
            killed.append(now)
            if place == "after_begin":
                threading.Thread(target=lambda: (time.sleep(_INTO_THE_JOBS_SECONDS), kill())).start()
            else:
                kill()

    failpoints.reached = reached
    conf = {"spark.cores.max": "2", "spark.executor.memory": "600m", "spark.task.maxFailures": "4"}
    spark = create_session(SparkSettings(master=master, driver_memory="1g", shuffle_partitions=2, conf=conf))
    session = ScriptSession(spark, Warehouse(root))
    for result in session.run(statements):
        if isinstance(result, tuple):
            sys.stdout.write(f"{type(result[1]).__name__}: {result[1]}\n")
            return 3
        if result.columns is not None:
            sys.stdout.write(f"{sorted(result.rows, key=str)}\n")
    sys.stdout.write(f"killed {killed}\n")
    return 0


if __name__ == "__main__":
    leave(main())
