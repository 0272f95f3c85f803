"""Views on a real cluster: a master and two workers; one dies with SIGKILL, and what executors held dies with it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import Cluster, running

_SETUP = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
CREATE TABLE d (g INT, name STRING, PRIMARY KEY (g));
INSERT INTO t SELECT id, id % 50, id FROM range(60000);
INSERT INTO d SELECT id, concat('n', id) FROM range(40);
"""
#: More rows than the driver commits: executors hold what was computed until it is written.
_MANY = "CREATE MATERIALIZED VIEW every AS SELECT t.k, t.v, d.name FROM t LEFT JOIN d ON t.g = d.g;"
#: Every change is too large for the driver: executors hold and write them.
_BY_EXECUTORS = "driver_change_bytes=0,driver_backfill_bytes=0"
_VIEWS = """
CREATE MATERIALIZED VIEW sums AS
  SELECT d.name, count(*) AS n, sum(v) AS s, max(v) AS m FROM t JOIN d ON t.g = d.g GROUP BY d.name;
CREATE MATERIALIZED VIEW top AS SELECT name, s FROM sums ORDER BY s DESC, name LIMIT 3;
CREATE MATERIALIZED VIEW pairs AS SELECT t.k, d.name FROM t LEFT JOIN d ON t.g = d.g WHERE t.v % 7 = 0;
"""
_CHANGES = "UPDATE t SET v = v + 1000 WHERE k % 5 = 0; DELETE FROM d WHERE g = 3; INSERT INTO d VALUES (45, 'new')"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def _run(cluster: Cluster, root: Path, statements: str, place: str) -> tuple[str, str]:
    command = [sys.executable, str(Path(__file__).parent / "cluster_process.py"), cluster.master, str(root), place]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "SPARK_LOCAL_IP": "127.0.0.1", "RELSTATE_SIZING": _BY_EXECUTORS}
    done = subprocess.run([*command, statements], env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    return done.stdout, done.stderr


def test_a_worker_that_dies_costs_no_row(cluster: Cluster, tmp_path: Path) -> None:
    root = tmp_path / "warehouse"
    for number, (statements, place, said) in enumerate(
        (
            # Of a backfill, what was computed and not yet written dies: the view is computed once more.
            (f"{_SETUP} {_MANY} {_VIEWS} VERIFY", "before_state_commit", "computing every once more, an executor was lost"),
            # Of an epoch, between what was committed and what is published: Spark repeats its tasks.
            (f"{_CHANGES}; REFRESH; VERIFY", "before_publish", ""),
        )
    ):
        out, log = _run(cluster, root, statements, place)
        assert said in log
        assert f"killed ['{place}']" in out
        assert "False" not in out
        time.sleep(0.5)
        assert len(cluster.worker_groups()) == 1, number
        cluster.add_worker()
