"""A run that is stopped leaves no thread behind that computes."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.jobs.engine.job_tag import new_tag, tagged_steps
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.view_epoch.cancellation import stop
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
    script.run("DELETE FROM t WHERE k >= 100; REFRESH")
    script.verify()


def test_what_is_done_between_two_reports_is_not_the_runs(spark: SparkSession, script: Script) -> None:
    """Its jobs would be counted, and cancelled, with those of the run."""
    script.run("CREATE TABLE u (k INT); CREATE MATERIALIZED VIEW quick AS SELECT count(*) AS n FROM u")
    context, before = spark.sparkContext, spark.sparkContext.getJobTags()
    script.run("INSERT INTO u VALUES (1); CREATE MATERIALIZED VIEW other AS SELECT k FROM u")
    reports = EpochRunner(spark, script.warehouse).run()
    for _ in reports:
        assert context.getJobTags() == before
    assert context.getJobTags() == before


def test_a_run_that_is_closed_by_another_thread_leaves_no_tag_behind(spark: SparkSession, script: Script) -> None:
    """As one that nobody holds any more is, by whichever thread collects garbage."""
    script.run(
        "CREATE TABLE u (k INT); CREATE MATERIALIZED VIEW quick AS SELECT count(*) AS n FROM u; INSERT INTO u VALUES (1)"
    )
    before = spark.sparkContext.getJobTags()
    reports = EpochRunner(spark, script.warehouse).run()
    next(iter(reports))
    closing = threading.Thread(target=reports.close)  # type: ignore[attr-defined]
    closing.start()
    closing.join()
    assert spark.sparkContext.getJobTags() == before
    script.run("REFRESH")
    script.verify()


def test_only_the_jobs_of_the_steps_of_a_generator_have_its_tag(spark: SparkSession) -> None:
    tag, at_work, closed = new_tag(spark), list[set[str]](), list[set[str]]()

    def steps() -> Generator[int]:
        try:
            for step in range(3):
                at_work.append(spark.sparkContext.getJobTags())
                yield step
        finally:
            closed.append(spark.sparkContext.getJobTags())

    for _ in tagged_steps(spark, tag, steps()):
        assert tag not in spark.sparkContext.getJobTags()
        if len(at_work) == 2:
            break
    else:
        pytest.fail("ended by itself")
    gc.collect()
    assert len(at_work) == 2
    assert all(tag in tags for tags in [*at_work, *closed])
    assert len(closed) == 1
    assert tag not in spark.sparkContext.getJobTags()
