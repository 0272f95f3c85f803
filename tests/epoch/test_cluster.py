"""Views on a real cluster: a master and two workers; one dies with SIGKILL, and what executors held dies with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import Cluster, running
from tests.processes import until

_SETUP = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
CREATE TABLE d (g INT, name STRING, PRIMARY KEY (g));
INSERT INTO t SELECT id, id % 50, id FROM range(60000);
INSERT INTO d SELECT id, concat('n', id) FROM range(40);
"""
#: The driver commits nothing: executors hold what was computed until it is written.
_MANY = "CREATE MATERIALIZED VIEW every AS SELECT t.k, t.v, d.name FROM t LEFT JOIN d ON t.g = d.g;"
#: Every change is too large for the driver: executors hold and write them.
_BY_EXECUTORS = "driver_change_bytes=0,driver_backfill_bytes=0,driver_commit_bytes=0"
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


#: Where a worker dies, and in what.
_SCRIPTS = {
    # Of a backfill, what was computed and not yet written dies: the view is computed once more.
    "before_state_commit": f"{_SETUP} {_MANY} {_VIEWS} VERIFY",
    # Of an epoch, between what was committed and what is published: Spark repeats its tasks.
    "before_publish": f"{_CHANGES}; REFRESH; VERIFY",
}


def test_a_worker_that_dies_costs_no_row(cluster: Cluster, tmp_path: Path) -> None:
    process = Path(__file__).parent / "cluster_process.py"
    arguments = [cluster.master, str(tmp_path / "warehouse"), *(text for script in _SCRIPTS.items() for text in script)]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "SPARK_LOCAL_IP": "127.0.0.1", "RELSTATE_SIZING": _BY_EXECUTORS}
    out, log = list[str](), tmp_path / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, str(process), *arguments], env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as run,
    ):
        assert run.stdout is not None
        for line in run.stdout:
            out.append(line)
            if line.startswith("killed"):
                until(lambda: len(cluster.worker_groups()) == 1, "one of two workers has died")
                cluster.add_worker()
    assert run.returncode == 0, "".join(out) + log.read_text()[-5000:]
    assert [line for line in out if line.startswith("killed")] == [f"killed ['{place}']\n" for place in _SCRIPTS]
    assert "computing every once more, an executor was lost" in log.read_text()
    # Executors were sent the function that encodes keys.
    assert "by Spark's expressions" not in log.read_text()
    assert "False" not in "".join(out)
