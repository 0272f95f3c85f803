"""Iceberg tables that Spark writes with Iceberg's own runtime.

Rows are deleted at their places, and tables compacted and repartitioned.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from relstate_dagster.jobs.sources.iceberg_source import IcebergSource
from relstate_dagster.state_lib.errors import SourceError
from tests.epoch.scripts import Script
from tests.epoch.test_iceberg_sources import rows_at, weights_of
from tests.iceberg_writer import Writer

pytestmark = pytest.mark.iceberg

_MARKS = ", ".join(f"'write.{kind}.mode' = 'merge-on-read'" for kind in ("delete", "update", "merge"))
#: Of one data file several commits have deletes then, each in a file of its own.
_BY_PARTITION = "'write.delete.granularity' = 'partition'"
_STEPS = [
    "INSERT INTO lake.db.t SELECT id, id % 3, concat('s', id), id FROM range(100)",
    "DELETE FROM lake.db.t WHERE id % 7 = 0",
    "UPDATE lake.db.t SET v = v + 1 WHERE id % 5 = 0",
    "CALL lake.system.rewrite_position_delete_files(table => 'db.t', options => map('rewrite-all', 'true'))",
    "ALTER TABLE lake.db.t ADD PARTITION FIELD g",
    "INSERT INTO lake.db.t SELECT id, NULL, 'new', 0 FROM range(5)",
    "DELETE FROM lake.db.t WHERE id > 60",
    "CALL lake.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))",
    "MERGE INTO lake.db.t USING (SELECT id AS k FROM range(4)) ON k = id WHEN MATCHED THEN UPDATE SET v = 100",
]


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Writer:
    return Writer(tmp_path_factory.mktemp("iceberg"))


def test_rows_and_changes_of_all_pairs_of_snapshots(spark: SparkSession, tmp_path: Path, writer: Writer) -> None:
    created = (
        f"CREATE TABLE lake.db.t (id BIGINT, g INT, s STRING, v DOUBLE) USING iceberg TBLPROPERTIES ({_MARKS}, {_BY_PARTITION})"
    )
    writer.run([created, *_STEPS])
    path = f"{writer.warehouse}/db/t"
    source, table = IcebergSource("t", path), StaticTable.from_metadata(path)
    source.facts()
    pins = [source.pin(None, until=entry.timestamp_ms) for entry in table.history()]
    assert len(pins) == len(_STEPS) - 1
    assert any(source.files(pin).deleted.places for pin in pins)
    for n, until in enumerate(pins):
        rows = rows_at(table, until)
        assert weights_of(source.all_rows(spark, until)) == rows
        for since in pins[: n + 1]:
            expected = Counter(rows)
            expected.subtract(rows_at(table, since))
            found = source.check_range(since, until, append_only=False)
            changes = weights_of(source.changes(spark, since, until, found))
            assert changes == Counter({row: weight for row, weight in expected.items() if weight})
    script = Script(spark, tmp_path / "warehouse")
    script.run(
        f"CREATE TABLE t USING iceberg LOCATION '{path}';"
        "CREATE MATERIALIZED VIEW sums AS SELECT g, sum(v) AS v, count(*) AS n FROM t GROUP BY g; VERIFY"
    )
    writer.run(["DELETE FROM lake.db.t WHERE id = 8", "INSERT INTO lake.db.t VALUES (1000, 2, 'z', 0.5)"])
    script.run("REFRESH; VERIFY")
    assert script.rows("SELECT sum(n) FROM sums") == [(sum(rows_at(table, pins[-1]).values()),)]


def test_deletes_and_files_that_are_not_read(writer: Writer) -> None:
    writer.run(
        [
            f"CREATE TABLE lake.db.vectors (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '3', {_MARKS})",
            "INSERT INTO lake.db.vectors SELECT id FROM range(9)",
            "DELETE FROM lake.db.vectors WHERE id = 3",
            "CREATE TABLE lake.db.orc (id BIGINT) USING iceberg TBLPROPERTIES ('write.format.default' = 'orc')",
            "INSERT INTO lake.db.orc VALUES (1)",
        ]
    )
    for name, problem in (("vectors", "deletes rows by files of format PUFFIN"), ("orc", "has files of format ORC")):
        with pytest.raises(SourceError, match=problem):
            IcebergSource(name, f"{writer.warehouse}/db/{name}").totals()
