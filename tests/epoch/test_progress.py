"""A view that takes long says how far it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.run import at_work
from relstate_dagster.jobs.run.runner import EpochRunner
from tests.epoch.scripts import Script

#: Hashes of pairs take seconds on any processor, where plain comparisons may be done between two looks.
_SLOW = """
CREATE MATERIALIZED VIEW slow TBLPROPERTIES ('refresh.policy' = 'full')
AS SELECT count(*) AS n FROM t a JOIN t b ON sha2(CAST(a.k * b.k AS STRING), 512) < 'f'
"""


def test_a_view_that_takes_long_says_how_far_it_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run("CREATE TABLE t (k BIGINT, PRIMARY KEY (k)); CREATE MATERIALIZED VIEW quick AS SELECT max(k) AS k FROM t")
    script.run(_SLOW)
    script.run("INSERT INTO t SELECT id FROM range(2500)")
    monkeypatch.setattr(at_work, "_FIRST_SECONDS", 0.1)
    monkeypatch.setattr(at_work, "_MOST_SECONDS", 0.2)
    said: list[str] = []
    reports = list(EpochRunner(spark, script.warehouse, on_start=said.append).run())
    assert not [report.problem for report in reports if report.problem]
    told = [line for line in said if re.fullmatch(r"slow: \d+ s so far, [\d,]+ of [\d,]+ Spark tasks done", line)]
    assert told, said
    for line in told:
        done, total = (int(number.replace(",", "")) for number in re.findall(r"([\d,]+) (?:of|Spark)", line))
        assert 0 <= done <= total
    script.verify()
