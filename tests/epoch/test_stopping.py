"""A run that is stopped leaves no thread behind that computes."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.jobs.epoch.runner import EpochRunner
from relstate_dagster.jobs.epoch.stopping import stop
from tests.epoch.scripts import Script

SLOW = "SELECT count(*) AS n FROM t a JOIN t b ON a.k % 7 <> b.k % 11"


def test_jobs_that_begin_after_the_first_cancel_are_cancelled_too_and_what_has_not_begun_never_does() -> None:
    cancelled, begun = threading.Event(), list[str]()

    def between_two_jobs(name: str) -> None:
        begun.append(name)
        time.sleep(0.5)
        cancelled.clear()
        assert cancelled.wait(30)
        raise InterruptedError

    with ThreadPoolExecutor(max_workers=1) as pool:
        futures = [pool.submit(between_two_jobs, name) for name in ("a", "b")]
        stop(futures, cancelled.set)
    assert begun == ["a"]
    assert isinstance(futures[0].exception(), InterruptedError)


def test_a_run_that_is_closed_ends_its_jobs_and_the_next_one_goes_on(spark: SparkSession, script: Script) -> None:
    script.run("CREATE TABLE t (k BIGINT, PRIMARY KEY (k)); INSERT INTO t SELECT id FROM range(400000); CREATE TABLE u (k INT)")
    views = f"CREATE MATERIALIZED VIEW slow AS {SLOW}; CREATE MATERIALIZED VIEW quick AS SELECT count(*) AS n FROM u"
    script.session._registry.declare(build_project(parse_text(views)).views)
    reports = EpochRunner(spark, script.warehouse).run()
    assert next(iter(reports)).view == "quick"
    started = time.monotonic()
    reports.close()  # type: ignore[attr-defined]
    assert time.monotonic() - started < 20
    assert not spark.sparkContext.getJobTags(), "what this thread does next is no longer the run's"
    script.run("DELETE FROM t WHERE k >= 100; REFRESH")
    script.verify()
