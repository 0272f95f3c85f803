"""``python -m tests.suites [tpch|tpcds …] [--queries q1,q2] [--epochs N] [--report FILE] [--table FILE]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from relstate_dagster.jobs.engine import SparkSettings, create_session
from tests.suites.changes import EPOCHS
from tests.suites.runner import Reports, SuiteRunner, run_queries
from tests.suites.suite import suite
from tests.suites.table import write_table


def main() -> int:
    """Run the suites, or a part of them; 1 if a view differed from its query or could not be maintained."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("suites", nargs="*", choices=["tpch", "tpcds", []], help="which suites; all without one")
    parser.add_argument("--queries", help="names, separated by commas (q1,q14a); all without them")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"how many of the {EPOCHS} epochs; 0 only plans")
    parser.add_argument("--report", type=Path, default=Path("suites.json"), help="finished queries; they are not run again")
    parser.add_argument("--parallel", type=int, default=2, help="how many queries side by side")
    parser.add_argument("--table", type=Path, help="only write the table of the report to this Markdown file")
    arguments = parser.parse_args()
    reports = Reports(arguments.report)
    if arguments.table:
        write_table(arguments.table, reports)
        return 0
    spark = create_session(
        SparkSettings(master="local[2]", driver_memory="4g", shuffle_partitions=2, app_name="relstate-suites")
    )
    failed = 0
    for name in arguments.suites or ["tpch", "tpcds"]:
        runner = SuiteRunner(spark, suite(name))
        wanted = arguments.queries.split(",") if arguments.queries else list(runner.suite.queries)
        made = run_queries(runner, wanted, arguments.epochs, reports, _say, arguments.parallel)
        failed += sum(bool(report.error) for report in made)
    spark.stop()
    return 1 if failed else 0


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a command


if __name__ == "__main__":
    sys.exit(main())
