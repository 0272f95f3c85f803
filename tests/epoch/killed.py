"""Processes that run epochs, or are killed at failpoints, with the suite's JVM or another."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from relstate_dagster.jobs.engine.failpoints import VARIABLE
from tests.lent_jvm import COMMAND_LINE, lent


def in_process(
    statements: str, folder: Path | str, failpoint: str, jvm: SparkSession | None = None
) -> subprocess.CompletedProcess[str]:
    """Run statements in a process that a failpoint kills.

    Parameters
    ----------
    jvm : a session whose JVM is lent to the process; by default it starts its own, which ends with it.
    """
    return _ended(["-c", COMMAND_LINE, "sql", "--warehouse", str(folder), "-e", statements], failpoint, lent(jvm))


def run_in_process(
    folder: Path | str, failpoint: str = "", jvm: SparkSession | None = None, **others: str
) -> subprocess.CompletedProcess[str]:
    """Run one epoch by ``epoch_process.py``; further variables are set for it."""
    return _ended([str(Path(__file__).with_name("epoch_process.py")), str(folder)], failpoint, {**lent(jvm), **others})


def two_runs_at_once(folder: Path | str, jvm: SparkSession | None = None) -> list[str]:
    """Outputs of two processes that begin an epoch together, and both end well."""
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda _: run_in_process(folder, jvm=jvm), range(2)))
    assert [run.returncode for run in ended] == [0, 0], [run.stdout + run.stderr for run in ended]
    return [run.stdout for run in ended]


def _ended(arguments: list[str], failpoint: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), VARIABLE: failpoint, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
