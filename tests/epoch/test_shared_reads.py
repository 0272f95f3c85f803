"""Changes that several views of a run read are read once, and mean the same to each of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.sources.delta_source import DeltaSource
from tests.epoch.scripts import Script
from tests.sizes import Resized

_SETUP = """
CREATE TABLE t (
  k INT, g STRING, v DECIMAL(12,2), at TIMESTAMP, born DATE, parts ARRAY<STRUCT<n: INT, s: STRING>>, unused BINARY,
  PRIMARY KEY (k)
);
CREATE TABLE d (g STRING, name STRING, PRIMARY KEY (g));
CREATE TABLE log (g STRING, v DOUBLE) TBLPROPERTIES ('delta.appendOnly' = 'true');
CREATE MATERIALIZED VIEW sums AS SELECT g, sum(v) AS s, count(*) AS n FROM t GROUP BY g;
CREATE MATERIALIZED VIEW newest AS SELECT g, max(at) AS at, min(born) AS first FROM t WHERE k > 1 GROUP BY g;
CREATE MATERIALIZED VIEW named AS SELECT t.k, d.name, t.parts FROM t LEFT JOIN d ON t.g = d.g;
CREATE MATERIALIZED VIEW lines AS SELECT g, v FROM log;
CREATE MATERIALIZED VIEW line_counts AS SELECT g, count(*) AS n FROM log GROUP BY g;
INSERT INTO d VALUES ('a', 'Ada'), ('b', 'Bob');
INSERT INTO t VALUES
  (1, 'a', 1.5, TIMESTAMP '2024-03-31 02:30:00', DATE '1500-01-01', array(named_struct('n', 1, 's', 'x')), X'00'),
  (2, 'b', NULL, NULL, NULL, NULL, NULL),
  (3, NULL, -2.25, TIMESTAMP '1890-01-01 00:00:00.000001', NULL, array(NULL), X'FF');
INSERT INTO log VALUES ('a', 0.5), ('a', 0.5), (NULL, NULL);
REFRESH;
"""

_CHANGES = (
    "UPDATE t SET v = v + 1, g = 'b' WHERE k <= 2; INSERT INTO log VALUES ('b', 1e300), ('a', 0.5)",
    "DELETE FROM t WHERE k = 2; UPDATE d SET name = 'Bo'; "
    "INSERT INTO t VALUES (4, 'a', 7, now(), current_date(), array(named_struct('n', NULL, 's', '')), X'')",
)


def _count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    reads: list[str] = []
    read = DeltaSource.changes

    def counted(self: DeltaSource, *given: object, **named: object) -> object:
        reads.append(self.name)
        return read(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaSource, "changes", counted)
    return reads


def test_views_of_a_run_share_what_they_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resized: Resized
) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run(_SETUP)
    reads = _count_reads(monkeypatch)
    # A source that one view alone reads is read by that view, and only where it has changed.
    for changes, expected in zip(_CHANGES, (["log", "t"], ["d", "t"]), strict=True):
        reads.clear()
        script.run(f"{changes}; REFRESH")
        assert sorted(reads) == expected
        script.verify()
    resized(shared_read_bytes=0)
    reads.clear()
    script.run("UPDATE t SET v = v + 1 WHERE k = 1; REFRESH")
    assert reads == ["t"] * 3, "what is too large to hold is read by each view"
    script.verify()
