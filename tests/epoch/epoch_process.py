"""One epoch over a warehouse in a process of its own, which a failpoint may kill: ``python epoch_process.py WAREHOUSE``.

``RELSTATE_JVM_ENDS_AT`` names a failpoint that kills the JVM only. ``RELSTATE_FAILPOINT=inside_publish`` kills the process
as soon as publishing has written a data file, before that is committed. It uses the JVM that it is lent, if any.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from relstate_dagster.cli.entry import leave
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine import SparkSettings, create_session, failpoints
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.settings import stores_for
from relstate_dagster.state_lib.errors import RelstateError
from tests.lent_jvm import borrowed_session


def main() -> int:
    warehouse = Warehouse(sys.argv[1])
    if os.environ.get(failpoints.VARIABLE) == "inside_publish":
        failpoints.reached = lambda place: _watch(Path(warehouse.root) / "views") if place == "before_publish" else None
    settings = SparkSettings(master="local[2]", driver_memory="1g", shuffle_partitions=2, stores=stores_for(warehouse.root))
    spark = borrowed_session() or create_session(settings)
    if jvm_ends_at := os.environ.get("RELSTATE_JVM_ENDS_AT"):
        jvm: Any = SparkContext._gateway
        failpoints.reached = lambda place: jvm.proc.kill() if place == jvm_ends_at else None
    try:
        for report in EpochRunner(spark, warehouse).run():
            sys.stdout.write(f"{report.view} {report.epoch} {'skipped' if report.skipped else 'done'}\n")
    except RelstateError as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n")
        return 3
    return 0


def _watch(folder: Path) -> None:
    before = set(folder.rglob("*.parquet"))

    def look() -> None:
        while True:
            if set(folder.rglob("*.parquet")) - before:
                os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=look, daemon=True).start()


if __name__ == "__main__":
    leave(main())
