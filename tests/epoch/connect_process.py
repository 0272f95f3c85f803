"""A client of a Spark Connect server, which runs and verifies one warehouse.

It writes a line of JSON for each line that it reads.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from datetime import timedelta

from relstate_dagster.jobs.api import EpochRunner, Warehouse
from relstate_dagster.jobs.engine import SparkSettings, create_session
from relstate_dagster.jobs.engine.instants import utc_now
from relstate_dagster.state_lib.errors import RelstateError


def main(address: str, folder: str) -> None:
    ahead = timedelta(0)
    session = create_session(SparkSettings(master=address))
    runner = EpochRunner(session, Warehouse(folder), clock=lambda: utc_now() + ahead)
    for line in sys.stdin:
        if line.strip() == "run tomorrow":
            ahead = timedelta(days=1)
        if line.startswith("run"):
            found = dict[str, str | None]()
            with suppress(RelstateError):  # raised at the end, where views were left behind: their reports say so
                found.update((report.view, report.problem) for report in runner.run())
        else:
            found = {report.view: report.problem or (None if report.equal else "it differs") for report in runner.verify()}
        sys.stdout.write(f"{json.dumps(found)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
