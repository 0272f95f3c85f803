"""Processes that are ready before a run is asked for: of a real `dagster dev`, killed, edited under, and left alone."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from dagster._daemon.monitoring.run_monitoring import execute_run_monitoring_iteration
from dagster._serdes import serialize_value

from benchmarks.dagster_dev import Runs, dagster_dev
from relstate_dagster import resources
from relstate_dagster.instance import workers as workers_module
from relstate_dagster.instance.workers import RunWorker, RunWorkers
from relstate_dagster.jobs.api import EpochRunner, Warehouse, sync_project
from relstate_dagster.jobs.catalog.claims import Claims
from relstate_dagster.jobs.catalog.locking import is_free
from relstate_dagster.jobs.declare import load_project
from tests.processes import until

VIEWS = """
CREATE TABLE t (k BIGINT, PRIMARY KEY (k));
CREATE MATERIALIZED VIEW v AS SELECT k % 3 AS g, count(*) AS n FROM t GROUP BY 1;
"""
TERMINATE = "mutation($run: String!) {terminateRun(runId: $run) {__typename}}"


class LaunchedRuns(Runs):
    def process(self, run_id):
        """The id of the process that says it is the run's."""
        found = lambda: re.findall(r"Started process for run \(pid: (\d+)\)", "\n".join(map(str, self.log_lines(run_id))))  # noqa: E731
        return int(self.until(found)[0])

    def next_process(self, group, after):
        """The id of the process that waits, once that of the run before has ended."""
        before = self.process(after)
        return self.until(lambda: next((pid for pid in workers(group) if pid != before), None))


def until_it_waits(pid):
    """Until a process has used no processor time for two seconds: it has imported everything."""
    before, since = -1, time.monotonic()
    while time.monotonic() - since < 2:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used = int(fields[11]) + int(fields[12])
        if used != before or fields[0] != "S":
            before, since = used, time.monotonic()
        time.sleep(0.1)


def monitored(instance):
    """What the daemon does every other minute."""
    with WorkspaceProcessContext(instance, EmptyWorkspaceTarget()) as context:
        assert not [problem for problem in execute_run_monitoring_iteration(context, logging.getLogger("test")) if problem]


def workers(group):
    """Processes of a group that are, or wait for, runs: their ids and commands."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and os.getpgid(int(folder.name)) == group:
                command = (folder / "cmdline").read_bytes().split(b"\0")
                if b"relstate_dagster.instance.run_worker" in command:
                    found[int(folder.name)] = [part.decode() for part in command]
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="asks Linux which processes there are")
def test_runs_begin_in_a_process_that_is_ready(spark, tmp_path):
    views = tmp_path / "project" / "views.sql"
    views.parent.mkdir()
    views.write_text(VIEWS)
    warehouse = Warehouse(tmp_path / "warehouse")
    sync_project(spark, warehouse, load_project(views.parent))
    spark.sql(f"INSERT INTO delta.`{warehouse.root}/sources/t` SELECT id FROM range(10)")
    list(EpochRunner(spark, warehouse).run())

    def claimed():
        return Claims(warehouse, "the-other-run", "bringing up to date")

    with dagster_dev(tmp_path, RELSTATE_PROJECT=str(views.parent)) as (address, group):
        runs = LaunchedRuns(address)
        begun = runs.launch()
        runs.until_it_is(begun, "SUCCESS")
        ready = runs.next_process(group, after=begun)

        # The next run is that process, what has been edited since is what it does, and another run is queued behind it.
        views.write_text(VIEWS.replace("k % 3", "k % 5"))
        with claimed() as other:
            other.take(["v"])
            first = runs.launch()
            runs.until_said(first, "the-other-run")
            assert runs.process(first) == ready
            second = runs.launch()
            time.sleep(1.5)  # the daemon has looked at the queue by then
            assert runs.all()[second] == "QUEUED"
        runs.until_it_is(first, "SUCCESS")
        runs.until_it_is(second, "SUCCESS")
        assert {row["g"] for row in spark.read.format("delta").load(f"{warehouse.root}/views/v").collect()} == set(range(5))

        # A package that has been edited since is imported again, by the same process.
        ready = runs.next_process(group, after=second)
        until_it_waits(ready)
        os.utime(resources.__file__)
        with claimed() as other:
            other.take(["v"])
            spark.sql(f"INSERT INTO delta.`{warehouse.root}/sources/t` VALUES (100)")
            run = runs.launch()
            runs.until_said(run, "the-other-run")
            assert runs.process(run) == ready
            assert "-1" in workers(group)[ready]

            # One that is killed has failed at once, gives its place back, and is started again.
            os.kill(ready, signal.SIGKILL)
            runs.until_it_is(run, "FAILURE")
            assert any("terminated by signal 9" in str(line) for line in runs.log_lines(run))
            again = runs.until(lambda: next((r for r, status in runs.all().items() if status == "STARTED"), None))
            runs.until_said(again, "the-other-run")

            # One that is terminated ends.
            runs.asked(TERMINATE, run=again)
            runs.until_it_is(again, "CANCELED")
        runs.until_it_is(runs.launch(), "SUCCESS")
        assert runs.until(lambda: workers(group))

        # All of it is killed in the middle of a run: Dagster's run monitoring finds that out later.
        with claimed() as other:
            other.take(["v"])
            spark.sql(f"INSERT INTO delta.`{warehouse.root}/sources/t` VALUES (101)")
            last = runs.launch()
            runs.until_said(last, "the-other-run")
            with DagsterInstance.from_config(str(tmp_path / "home")) as instance:
                monitored(instance)
                assert instance.get_run_by_id(last).status == DagsterRunStatus.STARTED
                os.killpg(group, signal.SIGKILL)

                def has_failed():
                    monitored(instance)
                    return instance.get_run_by_id(last).status == DagsterRunStatus.FAILURE

                until(has_failed, "the run has failed")
    until(lambda: not workers(group), "nobody waits for runs of a dagster dev that has ended")
    assert all(report.equal for report in EpochRunner(spark, warehouse).verify())


def test_a_process_that_nobody_asks_ends_and_another_takes_its_place(tmp_path, monkeypatch):
    (tmp_path / "dagster.yaml").touch()
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        reference = serialize_value(instance.get_ref())
        monkeypatch.setenv("RELSTATE_RUN_WORKER_IDLE_SECONDS", "0.1")
        workers = RunWorkers()
        workers.make_ready(sys.executable, reference)
        idle = workers._ready[sys.executable]
        assert not is_free(idle.lock)
        assert idle.process.wait(180) == 0
        assert is_free(idle.lock)
        monkeypatch.delenv("RELSTATE_RUN_WORKER_IDLE_SECONDS")
        taken = workers.take(sys.executable, reference, ["execute_run", "{}"])  # no run: it ends with an error
        assert taken is not None
        assert taken.process.pid != idle.process.pid
        assert taken.wait() == 1
        assert not taken.lock.exists()


def test_a_process_that_does_not_answer_never_begins_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(workers_module, "_BEGIN_SECONDS", 0.5)
    (tmp_path / "dagster.yaml").touch()
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        worker = RunWorker.started(sys.executable, serialize_value(instance.get_ref()))
        os.kill(worker.process.pid, signal.SIGSTOP)
        assert not worker.take(["execute_run", "{}"])
        assert worker.process.poll() == -signal.SIGKILL
        assert not worker.lock.exists()


def test_a_python_without_this_package_has_no_such_process(tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o700)
    assert RunWorkers().take(str(bare), "{}", ["execute_run", "{}"]) is None


def test_it_ends_with_the_process_that_made_it(tmp_path):
    (tmp_path / "dagster.yaml").touch()
    code = f"""
import json, os, sys
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from dagster._daemon.monitoring.run_monitoring import execute_run_monitoring_iteration
from dagster._serdes import serialize_value
from relstate_dagster.instance import workers as workers_module
from relstate_dagster.instance.workers import RunWorker
worker = RunWorker.started(sys.executable, serialize_value(DagsterInstance.from_config({str(tmp_path)!r}).get_ref()))
print(json.dumps([worker.process.pid, str(worker.lock)]), flush=True)
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180)
    _, lock = json.loads(done.stdout.splitlines()[-1])
    until(lambda: not Path(lock).exists(), "the process has ended, since nobody can ask it")


def test_locks_of_processes_that_were_killed_are_cleared(tmp_path, monkeypatch):
    monkeypatch.setenv("RELSTATE_CACHE", str(tmp_path))
    (tmp_path / "runs").mkdir()
    left = tmp_path / "runs" / "left"
    left.touch()
    os.utime(left, (0, 0))
    worker = RunWorker.started(sys.executable, "{}")
    assert not left.exists()
    assert worker.lock.exists()
    assert worker.wait() != 0  # there is no such instance
