"""A warehouse in an object store: the same verbs, errors and repairs as in a folder, and no commit lost by two writers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner
from relstate_dagster.state_lib.errors import RelstateError
from relstate_dagster.state_lib.lake.files import files_in, write_once
from tests.capabilities import commits_to_s3
from tests.epoch import store_checks
from tests.epoch.killed import two_runs_at_once
from tests.epoch.scripts import Script
from tests.epoch.test_recovery import _CHANGES, _SETUP
from tests.sizes import Resized
from tests.stores import Served, reach, served

pytestmark = pytest.mark.skipif(not commits_to_s3(), reason="Spark's Hadoop cannot commit to S3 safely, and is refused")


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store's log of requests."""
    return tmp_path_factory.mktemp("store") / "requests.log"


@pytest.fixture(scope="module")
def store(spark: SparkSession, requests: Path) -> Iterator[Served]:
    with served(requests) as started:
        reach(spark)
        yield started


@pytest.fixture
def root(store: Served) -> str:
    return f"s3://{store.bucket}/a folder/{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("by_spark", [False, True], ids=["by the driver", "by Spark"])
def test_epochs_of_all_kinds_of_state(
    spark: SparkSession, root: str, monkeypatch: pytest.MonkeyPatch, resized: Resized, by_spark: bool
) -> None:
    if by_spark:
        store_checks.leave_to_spark(monkeypatch, resized)
    script = store_checks.epochs_of_all_kinds_of_state(spark, root)
    script.run("DROP MATERIALIZED VIEW b; DROP MATERIALIZED VIEW a; DROP TABLE m")
    assert not files_in(f"{script.warehouse.root}/sources/m/_delta_log")
    script.run("CREATE MATERIALIZED VIEW a AS SELECT count(*) AS n FROM t; REFRESH; VERIFY")


def test_an_epoch_makes_few_requests(spark: SparkSession, requests: Path, root: str) -> None:
    """Each is paid for, and takes tens of milliseconds. Where they go: docs/object-stores.md."""
    script = Script(spark, root)
    script.run(
        "CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k)); INSERT INTO t SELECT id, id % 5, id FROM range(50); "
        "CREATE MATERIALIZED VIEW sums AS SELECT g, sum(v) AS s FROM t GROUP BY g"
    )
    runner = EpochRunner(spark, script.warehouse)

    def made(act: Callable[[], object]) -> int:
        before = len(requests.read_text().splitlines())
        act()
        return len(requests.read_text().splitlines()) - before

    script.run("UPDATE t SET v = v + 1 WHERE k = 1")
    assert made(lambda: list(runner.run())) < 150
    assert made(lambda: list(runner.run())) < 20, "nothing has changed"
    script.verify()


def test_bad_input_is_told_before_anything_is_written(spark: SparkSession, store: Served, root: str) -> None:
    script = Script(spark, root)
    script.run("CREATE TABLE t (k INT, v INT, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 1)")
    for statement, said in (
        ("CREATE MATERIALIZED VIEW v AS SELECT nope FROM t", "nope"),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM missing", "missing"),
        ("DROP MATERIALIZED VIEW nothing", "there is no view named nothing"),
        (f"CREATE TABLE x USING delta LOCATION 's3://{store.bucket}/not/there'", "there is no Delta table"),
    ):
        assert said in str(script.error(statement))
    script.run("CREATE MATERIALIZED VIEW v AS SELECT sum(v) AS s FROM t; INSERT INTO t VALUES (1, 5)")
    assert "key" in str(script.error("REFRESH"))
    script.run("DELETE FROM t WHERE v = 5; REFRESH; VERIFY")
    assert isinstance(script.error("CREATE TABLE y USING delta LOCATION 's3://no-such-bucket-anywhere/t'"), RelstateError)


def test_a_folder_of_files(spark: SparkSession, root: str) -> None:
    script = Script(spark, f"{root}/warehouse")
    write_once(f"{root}/files/a [1].csv", b"1,2024-01-01\n2,no day\n")
    script.run(f"""
        CREATE TABLE f (k INT, day DATE) USING csv LOCATION '{root}/files';
        CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM f;
    """)
    write_once(f"{root}/files/below/b {{x}} ü%41.csv", b"3,2024-01-01\n4,2024-01-02\n")
    script.run("REFRESH; VERIFY")
    assert script.rows("SELECT n FROM v") == [(3,)]
    source = script.warehouse.read().sources["f"]
    found = [("a [1].csv", 2, "day: 'no day' is no DATE")]
    assert script.rows(f"SELECT file, record, reason FROM delta.`{source.path}/_malformed`") == found


def test_the_next_run_repairs_a_killed_one(spark: SparkSession, root: str) -> None:
    store_checks.a_killed_run_is_repaired(spark, root)


def test_of_two_runs_at_once_both_end_well(spark: SparkSession, root: str, jvm: SparkSession | None) -> None:
    script = Script(spark, root)
    script.run(_SETUP + _CHANGES)
    two_runs_at_once(root, jvm)
    script.run("REFRESH; VERIFY")


def test_each_version_of_a_table_is_written_once_whoever_writes(spark: SparkSession, root: str) -> None:
    """Spark's commits and those of delta-rs are made by puts that the store refuses where there is an object already."""
    jvm, configuration = spark._jvm, spark._jsc.hadoopConfiguration()
    stores = [jvm.relstate.ConditionalS3LogStore(configuration) for _ in range(6)]
    written, refused = Counter[int](), Counter[str]()

    def write(writer: int, version: int) -> None:
        lines = jvm.java.util.ArrayList()
        lines.add(f"of {writer}")
        path = jvm.org.apache.hadoop.fs.Path(f"{root.replace('s3:', 's3a:')}/t/_delta_log/{version:020d}.json")
        try:
            stores[writer].write(path, lines.iterator(), False, configuration)
        except Exception as error:
            refused[type(error).__name__ + str(error.java_exception.getClass().getSimpleName())] += 1
        else:
            written[version] += 1

    for version in range(5):
        threads = [threading.Thread(target=write, args=(writer, version)) for writer in range(len(stores))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert written == dict.fromkeys(range(5), 1)
    assert refused == {"Py4JJavaErrorFileAlreadyExistsException": 25}


def test_writers_of_the_catalog_lose_nothing(root: str) -> None:
    store_checks.writers_of_the_catalog_lose_nothing(root)


def test_the_verbs(root: str, tmp_path: Path) -> None:
    """As a user runs them: keys and endpoint are in environment variables only."""
    (tmp_path / "t.sql").write_text("CREATE TABLE t (k INT, g INT, PRIMARY KEY (k))")
    (tmp_path / "v.sql").write_text("CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g")
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "RELSTATE_PROJECT": str(tmp_path)}
    code = "from relstate_dagster.cli import console_script; console_script()"

    def relstate(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments, "--warehouse", root],
            env=environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    relstate("run")
    relstate("sql", "-e", "INSERT INTO t VALUES (1, 1), (2, 1), (3, 2); REFRESH; VERIFY")
    assert "see below" not in relstate("status")
    versions = [line for line in relstate("snapshot", "--json").splitlines() if line.startswith("{")]
    assert json.loads(versions[0])["views"]["v"]["epoch"] == 2
