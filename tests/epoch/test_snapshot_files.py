"""Files of a version: those before some changes, and rows as Delta reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.sources import delta_versions
from relstate_dagster.jobs.sources.delta_source import DeltaSource
from relstate_dagster.jobs.sources.delta_versions import DeltaVersions

_FEED = {"delta.enableChangeDataFeed": "true"}


def _append(path: str, *keys: int) -> None:
    write_deltalake(path, pa.table({"k": list(keys)}), mode="append", configuration=_FEED)


def _append_then_compact(path: str) -> None:
    _append(path, 5)
    DeltaTable(path).optimize.compact()


def _compact_then_append(path: str) -> None:
    DeltaTable(path).optimize.compact()
    _append(path, 5)


@pytest.mark.parametrize(
    ("change", "rows_before"),
    [
        (lambda _: None, 4),
        (lambda path: _append(path, 5, 6), 4),
        (lambda path: [_append(path, 5), _append(path, 6)], 4),
        (_compact_then_append, 4),
        (_append_then_compact, None),
        (lambda path: DeltaTable(path).delete("k = 1"), None),
        (lambda path: DeltaTable(path).update(predicate="k = 1", new_values={"k": 9}), None),
    ],
    ids=["nothing", "one append", "two appends", "compacted, appended", "appended, compacted", "delete", "update"],
)
def test_files_before(tmp_path: Path, change: Callable[[str], object], rows_before: int | None) -> None:
    path = str(tmp_path / "t")
    _append(path, 1, 2)
    _append(path, 3, 4)
    source = DeltaSource("t", path, ("k",))
    since = source.pin(None)
    change(path)
    until = DeltaSource("t", path, ("k",)).pin(None)
    found = source.check_range(since, until, append_only=False)
    before = source.versions.files_at(until.version).before(found)
    assert (None if before is None else sum(file.rows for file in before.files)) == rows_before


_TEXTS = ("a b", "ü/%41", "größer", None, "%zz", "x=y", "日本", "e\u0301", "%C3%BC", "100%", "'", "a:b", "Ã¼")


def _by_delta_rs(spark: SparkSession, path: str, partitioned_by: list[str]) -> None:
    rows = pa.table({"k": pa.array(range(len(_TEXTS)), pa.int32()), "g": pa.array(_TEXTS, pa.string())})
    write_deltalake(path, rows, partition_by=partitioned_by, configuration=_FEED)
    DeltaTable(path).delete("k = 1")
    write_deltalake(path, rows.slice(1, 3), mode="append")


def _by_spark(spark: SparkSession, path: str, partitioned_by: list[str]) -> None:
    rows = spark.createDataFrame([*enumerate(_TEXTS)], "k INT, g STRING")
    rows.write.format("delta").partitionBy(*partitioned_by).save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k = 1")
    rows.where("k < 3").write.format("delta").mode("append").save(path)


def _marked(spark: SparkSession, path: str, partitioned_by: list[str]) -> None:
    by = f"PARTITIONED BY ({', '.join(partitioned_by)})" if partitioned_by else ""
    spark.sql(
        f"CREATE TABLE delta.`{path}` (k INT NOT NULL, g STRING) USING delta {by} TBLPROPERTIES "
        "('delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name')"
    )
    spark.createDataFrame([*enumerate(_TEXTS)], "k INT, g STRING").write.format("delta").mode("append").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k IN (1, 4)")
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN k TO `new k`")


def _widened(spark: SparkSession, path: str, partitioned_by: list[str]) -> None:
    """Columns of another type, and one more, than older files have."""
    by = f"PARTITIONED BY ({', '.join(partitioned_by)})" if partitioned_by else ""
    columns = "k INT, g STRING, f FLOAT, d DECIMAL(4, 2), day DATE, s STRUCT<x: SMALLINT>"
    properties = "'delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported'"
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {by} TBLPROPERTIES ({properties})")
    values = "k, g, CAST(k AS FLOAT) / 3, CAST(k AS DECIMAL(4, 2)), DATE'2024-01-01' + k, struct(CAST(k AS SMALLINT))"
    spark.createDataFrame([*enumerate(_TEXTS)], "k INT, g STRING").createOrReplaceTempView("written")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT {values} FROM written")
    for column, wider in (("k", "BIGINT"), ("f", "DOUBLE"), ("d", "DECIMAL(12, 4)"), ("day", "TIMESTAMP_NTZ"), ("s.x", "INT")):
        spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN {column} TYPE {wider}")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN (later INT)")
    newest = "3000000000, 'ü', 1D / 3, 1.0001, TIMESTAMP_NTZ'2024-01-01 10:00', struct(70000), 1"
    spark.sql(f"INSERT INTO delta.`{path}` VALUES ({newest})")


def _padded(spark: SparkSession, path: str, partitioned_by: list[str]) -> None:
    by = f"PARTITIONED BY ({', '.join(partitioned_by)})" if partitioned_by else ""
    spark.sql(f"CREATE TABLE delta.`{path}` (k INT, g CHAR(5), v VARCHAR(9)) USING delta {by}")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a b', 'a b'), (2, 'a', 'a '), (3, NULL, NULL), (4, 'größe', '')")


@pytest.mark.parametrize("partitioned_by", [[], ["g"]], ids=["plain", "partitioned"])
@pytest.mark.parametrize("write", [_by_delta_rs, _by_spark, _marked, _widened, _padded])
def test_rows_of_versions_are_as_delta_reads_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None], partitioned_by: list[str]
) -> None:
    path = str(tmp_path / "a tab%le")
    write(spark, path, partitioned_by)
    versions = DeltaVersions("t", path)
    for version in range(DeltaTable(path).version() + 1):
        theirs, ours = versions.rows_by_delta(spark, version), versions.rows(spark, version)
        assert [(f.name, f.dataType) for f in ours.schema.fields] == [(f.name, f.dataType) for f in theirs.schema.fields]
        assert sorted(map(repr, ours.collect())) == sorted(map(repr, theirs.collect())), version
        # Texts are compared as the declared types say.
        assert ours.where("g = 'a b'").count() == theirs.where("g = 'a b'").count(), version
        if write in (_by_delta_rs, _by_spark) and not partitioned_by:
            assert _is_of_files(ours), "without Delta's jobs"
    monkeypatch.setattr(delta_versions, "_MOST_FILES", 0)
    assert not _is_of_files(versions.rows(spark, versions.table.at(None).version())), "more files are left to Delta"


def _is_of_files(rows: DataFrame) -> bool:
    return "InMemoryFileIndex" in rows._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize("partitioned_by", [[], ["g"]], ids=["plain", "partitioned"])
@pytest.mark.parametrize("padding", ["true", "false"])
@pytest.mark.parametrize("as_string", ["true", "false"])
def test_char_columns_are_read_as_each_session_says(
    spark: SparkSession, tmp_path: Path, partitioned_by: list[str], padding: str, as_string: str
) -> None:
    path = str(tmp_path / "table")
    _padded(spark, path, partitioned_by)
    session = spark.newSession()
    session.conf.set("spark.sql.readSideCharPadding", padding)
    session.conf.set("spark.sql.legacy.charVarcharAsString", as_string)
    versions = DeltaVersions("t", path)
    ours, theirs = versions.rows(session, 1), versions.rows_by_delta(session, 1)
    assert "InMemoryFileIndex" in ours._jdf.queryExecution().executedPlan().toString(), "without Delta's jobs"
    for condition in ("true", "g = 'a b'", "g = 'a b  '", "g = v", "g IN ('a', 'x')", "length(g) = 5"):
        found = [sorted(map(repr, rows.where(condition).collect())) for rows in (ours, theirs)]
        assert found[0] == found[1], condition
