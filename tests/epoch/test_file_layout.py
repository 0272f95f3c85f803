"""Sources of other layouts read as files: partitioned, with mapped column names, with deletion vectors."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.sources.deleted_rows import DeletedRows
from relstate_dagster.jobs.sources.delta_source import DeltaSource
from relstate_dagster.jobs.sources.key_files import KeyProblem, changed_keys, new_keys, problem_with_new
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.jobs.sources.snapshot_files import SnapshotFiles
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from tests.epoch.scripts import Script

_FEED = "'delta.enableChangeDataFeed' = 'true'"
_DELETING = "'delta.enableDeletionVectors' = 'true'"
_MAPPED = "'delta.columnMapping.mode' = 'name'"
_COLUMNS = "k INT, g STRING, d DATE, b BOOLEAN, s STRUCT<x: INT, ys: ARRAY<STRUCT<y: STRING>>>, v STRING"
_ROWS = (
    "SELECT id, CASE id % 4 WHEN 0 THEN NULL WHEN 1 THEN 'a b/c%=}[*ü' WHEN 2 THEN '007' ELSE '' END, "
    "DATE'2024-02-28' + CAST(id % 3 AS INT), id % 2 = 0, struct(id, array(struct('y' || id))), 'v' || id"
)


_INTO = f"INSERT INTO delta.`{{t}}` {_ROWS}"
_LAYOUTS = pytest.mark.parametrize(
    ("properties", "partitioned"),
    [
        (f"{_FEED}, {_DELETING}", "PARTITIONED BY (g)"),
        (f"{_FEED}, {_MAPPED}, {_DELETING}", ""),
    ],
    ids=["partitioned", "mapped"],
)


def _table(spark: SparkSession, path: Path, properties: str, partitioned: str = "") -> str:
    spark.sql(f"CREATE TABLE delta.`{path}` ({_COLUMNS}) USING delta {partitioned} TBLPROPERTIES ({properties})")
    spark.sql(f"INSERT INTO delta.`{path}` {_ROWS} FROM range(0, 40, 1, 1)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k % 7 = 3")
    spark.sql(f"UPDATE delta.`{path}` SET v = NULL, g = 'new' WHERE k % 7 = 4")
    spark.sql(f"INSERT INTO delta.`{path}` {_ROWS} FROM range(60, 65, 1, 1)")
    return str(path)


def _files(path: str) -> SnapshotFiles:
    source = DeltaSource("t", path)
    return source.versions.files_at(source.facts().version)


def _rows(frame: DataFrame) -> Counter[str]:
    return Counter(str(tuple(row)) for row in frame.collect())


def _check_changes(spark: SparkSession, path: str, since: Pin, until: Pin) -> None:
    source = DeltaSource("t", path, ("k",))
    found = source.check_range(since, until, append_only=False)
    assert found.files is not None
    changes = source.changes(spark, since, until, found)
    assert changes is not None
    rows = _rows(source.snapshot(spark, since))
    for *values, weight in changes.collect():
        rows[str(tuple(values))] += weight
    assert {row: n for row, n in rows.items() if n} == _rows(source.snapshot(spark, until))


@_LAYOUTS
def test_files_hold_what_delta_reads(spark: SparkSession, tmp_path: Path, properties: str, partitioned: str) -> None:
    path = _table(spark, tmp_path / "t", properties, partitioned)
    files = _files(path)
    table = spark.read.format("delta").load(path)
    assert files.are_rows
    assert files.deleted.places
    assert files.read(spark, None).columns == table.columns
    assert _rows(files.read(spark, None)) == _rows(table)
    keys = LookupKeys.of("k", pa.chunked_array([pa.array([4, 999])]), null_safe=False)
    assert keys is not None
    assert len(files.files_with(keys)) < len(files.files)
    assert _rows(files.read(spark, keys).where("k = 4")) == _rows(table.where("k = 4"))
    # And so do the files of the changes that follow, of each commit and of all together.
    first = since = DeltaSource("t", path, ("k",)).pin(None)
    for statement in (
        "DELETE FROM delta.`{t}` WHERE k % 7 = 5",
        "DELETE FROM delta.`{t}` WHERE k % 7 = 6 OR b",
        "RESTORE TABLE delta.`{t}` TO VERSION AS OF 5",
        "UPDATE delta.`{t}` SET d = NULL WHERE k % 7 = 1",
        f"{_INTO} FROM range(100, 110, 1, 1)",
        "DELETE FROM delta.`{t}` WHERE true",
    ):
        spark.sql(statement.replace("{t}", path))
        until = DeltaSource("t", path, ("k",)).pin(None)
        _check_changes(spark, path, since, until)
        since = until
    _check_changes(spark, path, first, until)


def test_a_marked_row_is_a_small_change(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{path}` (k INT) USING delta TBLPROPERTIES ({_FEED}, {_DELETING})")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id FROM range(0, 100000, 1, 1)")
    since = DeltaSource("t", str(path), ("k",)).pin(None)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k IN (5, 7)")
    source = DeltaSource("t", str(path), ("k",))
    found = source.check_range(since, source.pin(None), append_only=False)
    assert found.changed_bytes < 100
    assert (found.rows_inserted, found.rows_deleted) == (0, 2)


def test_a_vector_that_is_gone_is_told_before_anything_is_read(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{path}` (k INT) USING delta TBLPROPERTIES ({_FEED}, {_DELETING})")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id FROM range(0, 1000, 1, 1)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k = 5")
    since = DeltaSource("t", str(path), ("k",)).pin(None)
    (vector,) = path.glob("*.bin")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k = 7")
    vector.unlink()
    source = DeltaSource("t", str(path), ("k",))
    with pytest.raises(SourceError, match=r"deletion vector of .* at version 2 .*vacuumed.*--full-refresh"):
        source.check_range(since, source.pin(None), append_only=False)


def test_a_partition_column_tells_which_files_matter(spark: SparkSession, tmp_path: Path) -> None:
    files = _files(_table(spark, tmp_path / "t", _FEED, "PARTITIONED BY (g, d)"))
    wanted = LookupKeys.of("g", pa.chunked_array([pa.array(["007"])]), null_safe=False)
    assert wanted is not None
    folders = {unquote(file.path).split("/")[0] for file in files.files_with(wanted)}
    # Of rows whose value is NULL the log has no bounds.
    assert folders == {"g=007", "g=__HIVE_DEFAULT_PARTITION__"}


@pytest.mark.parametrize(
    ("columns", "properties", "partitioned"),
    [
        ("k INT, t TIMESTAMP", _FEED, "PARTITIONED BY (t)"),
        ("k INT, p INT", f"{_FEED}, {_MAPPED}", "PARTITIONED BY (p)"),
        ("k INT, p INT", f"{_FEED}, 'delta.columnMapping.mode' = 'id'", ""),
    ],
    ids=["timestamp", "mapped and partitioned", "mapped by id"],
)
def test_other_layouts_are_left_to_delta(
    spark: SparkSession, tmp_path: Path, columns: str, properties: str, partitioned: str
) -> None:
    path = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {partitioned} TBLPROPERTIES ({properties})")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, {'now()' if 'TIMESTAMP' in columns else 2})")
    assert not _files(str(path)).are_rows


_WIDENED = {
    "a TINYINT": "SMALLINT",
    "b SMALLINT": "INT",
    "c INT": "BIGINT",
    "d INT": "DOUBLE",
    "e FLOAT": "DOUBLE",
    "f INT": "DECIMAL(12,2)",
    "g DECIMAL(5,2)": "DECIMAL(20,4)",
    "h BIGINT": "DECIMAL(22,1)",
    "i STRUCT<x: INT>": "STRUCT<x: BIGINT>",
}


def test_files_with_narrower_types_are_read_as_delta_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    path, names = tmp_path / "t", [column.split()[0] for column in _WIDENED]
    widening = f"{_FEED}, 'delta.enableTypeWidening' = 'true'"
    spark.sql(f"CREATE TABLE delta.`{path}` (k INT, {', '.join(_WIDENED)}) USING delta TBLPROPERTIES ({widening})")
    values = "1Y, 2S, 3, 4, 5.5F, 6, 7.25, 8, named_struct('x', 9)"
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, {values}), (2, {', '.join('NULL' for _ in names)})")
    for name, (declared, data_type) in zip(names, _WIDENED.items(), strict=True):
        place, new_type = ("i.x", "BIGINT") if "STRUCT" in declared else (name, data_type)
        spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN {place} TYPE {new_type}")
    since = DeltaSource("t", str(path), ("k",)).pin(None)
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (3, {values})")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k = 1")
    files = _files(str(path))
    assert files.are_rows
    rows = files.read(spark, None)
    assert rows.schema.simpleString() == spark.read.format("delta").load(str(path)).schema.simpleString()
    assert sorted(rows.collect()) == sorted(spark.read.format("delta").load(str(path)).collect())
    _check_changes(spark, str(path), since, DeltaSource("t", str(path), ("k",)).pin(None))


def test_folders_that_do_not_tell_the_values_are_left_to_delta(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    prefix = "'delta.randomizeFilePrefixes' = 'true'"
    spark.sql(f"CREATE TABLE delta.`{path}` (k INT, p INT) USING delta PARTITIONED BY (p) TBLPROPERTIES ({_FEED}, {prefix})")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 2)")
    assert not _files(str(path)).are_rows


_SETUP = """
CREATE TABLE item (k INT, day DATE, g STRING, PRIMARY KEY (k, day)) USING delta PARTITIONED BY (day) TBLPROPERTIES ({feed});
CREATE TABLE part (k INT, w INT, PRIMARY KEY (k)) USING delta TBLPROPERTIES ({feed}, {deleting});
CREATE TABLE dim (g STRING, `a name` STRING, PRIMARY KEY (g)) USING delta TBLPROPERTIES ({feed}, {deleting}, {mapped});
INSERT INTO item SELECT id, DATE'2024-01-01' + CAST(id % 4 AS INT), 'g' || id % 3 FROM range(40);
INSERT INTO part SELECT id, id FROM range(0, 40, 1, 1);
INSERT INTO dim SELECT 'g' || id, 'n' || id FROM range(0, 5, 1, 1);
CREATE MATERIALIZED VIEW v AS SELECT i.day, d.`a name` AS name, count(*) AS n, sum(p.w) AS w
  FROM item i JOIN part p ON p.k = i.k JOIN dim d ON d.g = i.g GROUP BY i.day, d.`a name`;
REFRESH
"""


@pytest.mark.parametrize(
    "feature",
    ["'delta.enableTypeWidening' = 'true'", "'delta.feature.vacuumProtocolCheck' = 'supported'"],
    ids=["type", "vacuum"],
)
def test_vectors_that_delta_rs_refuses_to_read_are_left_to_delta(spark: SparkSession, tmp_path: Path, feature: str) -> None:
    """Of a table with a feature that it does not know: rows, changes, lookups and keys are the table's all the same."""
    script = Script(spark, tmp_path / "warehouse")
    script.run(f"""
    CREATE TABLE t (k INT, g INT, PRIMARY KEY (k)) USING delta TBLPROPERTIES ({_FEED}, {_DELETING}, {feature});
    CREATE TABLE u (g INT) USING delta TBLPROPERTIES ({_DELETING}, {feature}, 'delta.appendOnly' = 'true');
    INSERT INTO t SELECT id, id % 5 FROM range(0, 40, 1, 1);
    INSERT INTO u SELECT id FROM range(0, 4, 1, 1);
    DELETE FROM t WHERE k = 7;
    CREATE MATERIALIZED VIEW v AS SELECT t.k, u.g FROM u LEFT JOIN t ON t.g = u.g;
    REFRESH; VERIFY;
    DELETE FROM t WHERE k % 6 = 2;
    UPDATE t SET g = 1 WHERE k = 10;
    INSERT INTO t VALUES (7, 1);
    INSERT INTO u VALUES (4), (1);
    REFRESH; VERIFY;
    INSERT INTO t VALUES (9, 1)
    """)
    assert not _files(script.warehouse.source_path("t")).are_rows
    assert "PRIMARY KEY (k)" in str(script.error("REFRESH"))


def test_their_keys_are_checked_by_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run(_SETUP.format(feed=_FEED, deleting=_DELETING, mapped=_MAPPED))
    # Of each table a key that is there already, and one that is NULL.
    for table, row, back, problem in (
        ("item", "(7, DATE'2024-01-04', 'x')", "g = 'x'", "2 rows have"),
        ("part", "(17, -1)", "k = 17", "2 rows have"),
        ("dim", "('g2', 'x')", "`a name` = 'x'", "2 rows have"),
        ("item", "(91, NULL, 'x')", "g = 'x'", "NULL in it"),
    ):
        with pytest.raises(SourceError, match=rf"{table} .*PRIMARY KEY.*{problem}"):
            script.run(
                f"DELETE FROM part WHERE k = 8; INSERT INTO part VALUES (17, 1); INSERT INTO {table} VALUES {row}; REFRESH"
            )
        script.run(f"DELETE FROM {table} WHERE {back}; DELETE FROM part WHERE k = 17; REFRESH")
    script.verify()


def test_a_key_that_is_in_no_file_is_checked_as_well(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{path}` (day DATE, v INT) USING delta PARTITIONED BY (day) TBLPROPERTIES ({_FEED})")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (DATE'2024-01-01', 1), (DATE'2024-01-02', 2)")
    since = DeltaSource("t", str(path), ("day",)).pin(None)
    for day, problem in (("2024-01-03", None), ("2024-01-02", "2 rows have day = datetime.date(2024, 1, 2)")):
        spark.sql(f"INSERT INTO delta.`{path}` VALUES (DATE'{day}', 3)")
        source = DeltaSource("t", str(path), ("day",))
        until = source.pin(None)
        found, layout = source.check_range(since, until, append_only=False), source.layout(until.version)
        assert found.files is not None
        assert layout is not None
        new = new_keys(changed_keys(layout, found.files, source.key), source.key)
        assert not isinstance(new, KeyProblem)
        said = problem_with_new(new, source.key, source.versions.files_at(since.version))
        assert (None if said is None else str(said).split(";")[0]) == problem


def test_deleted_rows_beyond_those_that_a_vector_tells() -> None:
    deleted = DeletedRows.of_kept({"a b.parquet": pa.array([True, False])})
    rows = pa.table({"k": [1, 2, 3, 4]})
    assert deleted.without("p=1/a%20b.parquet", rows)["k"].to_pylist() == [1, 3, 4]
    assert deleted.without("other.parquet", rows) is rows
    assert "a%20b.parquet" in deleted
