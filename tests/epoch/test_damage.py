"""Tables and catalogs that are damaged, put back, changed by hand, or dropped by a process that died: never a wrong row."""

from __future__ import annotations

import re
import shutil
import signal
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, Warehouse, sync_project
from relstate_dagster.jobs.declare import ViewDeclaration, build_project, parse_text
from relstate_dagster.jobs.inspect.health import problems_of_tables
from relstate_dagster.state_lib.errors import DeclarationError, RelstateError, StateError, WarehouseError
from tests.epoch.killed import in_process
from tests.epoch.scripts import Script

_TABLES = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
INSERT INTO t VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30);
CREATE MATERIALIZED VIEW sums AS SELECT g, sum(v) AS s FROM t GROUP BY g;
"""
_CHANGES = ("INSERT INTO t VALUES (4, 2, 40)", "UPDATE t SET v = v + 1 WHERE k = 1", "DELETE FROM t WHERE k = 2")


@pytest.fixture(scope="module")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse after three epochs."""
    folder = tmp_path_factory.mktemp("built") / "warehouse"
    script = Script(spark, folder)
    script.run(_TABLES)
    for change in _CHANGES[:2]:
        script.run(f"{change}; REFRESH")
    return folder


@pytest.fixture
def script(spark: SparkSession, built: Path, tmp_path: Path) -> Script:
    return Script(spark, shutil.copytree(built, tmp_path / "warehouse"))


def _tables(warehouse: Warehouse) -> dict[str, str]:
    return {"state": warehouse.state_path(warehouse.read().views["sums"]), "published": warehouse.target("sums").path}


def _last_commit(path: str) -> Path:
    return max(Path(path, "_delta_log").glob("*.json"))


def _problems(script: Script) -> list[str]:
    state = script.warehouse.read()
    return list(problems_of_tables(script.warehouse, state, state.views["sums"]))


def _rebuilt(script: Script) -> None:
    list(EpochRunner(script.session._spark, script.warehouse).run(full_refresh=["sums"]))
    assert not _problems(script)
    script.verify()
    script.run(f"{_CHANGES[2]}; REFRESH; VERIFY")


@pytest.mark.parametrize("table", ["state", "published"])
@pytest.mark.parametrize("damage", ["empty", "gone", "of another life"])
def test_a_table_without_its_last_epoch_is_not_built_upon(script: Script, table: str, damage: str) -> None:
    last = _last_commit(_tables(script.warehouse)[table])
    match damage:
        case "empty":
            last.write_text("")
        case "gone":
            last.unlink()
        case _:
            last.write_text(last.read_text().replace('\\"digest\\": \\"', '\\"digest\\": \\"0'))
    for crc in last.parent.glob(f"*{last.stem}*crc"):
        crc.unlink()
    assert len(_problems(script)) == 1
    what = "state" if table == "state" else "published table"
    if damage == "empty":
        # Said where nothing has changed, and to readers, who would get the rows of before.
        for statement in ("REFRESH", "VERIFY", "SELECT * FROM sums") if table == "published" else ("REFRESH",):
            assert f"its {what}" in str(Script(script.session._spark, Path(script.warehouse.root)).error(statement))
    script.run(_CHANGES[2])
    with pytest.raises(StateError, match=f"view sums: its {what} .*--full-refresh sums"):
        script.run("REFRESH")
    assert script.warehouse.read().views["sums"].problem is not None
    with pytest.raises(StateError, match=f"view sums: its {what}"):
        script.run("REFRESH")
    list(EpochRunner(script.session._spark, script.warehouse).run(full_refresh=["sums"]))
    script.run("VERIFY; UPDATE t SET v = v * 3; REFRESH; VERIFY")
    assert not _problems(script)


def test_a_catalog_from_a_backup_takes_back_what_it_does_not_know(script: Script, tmp_path: Path) -> None:
    catalog = Path(script.warehouse.catalog.path)
    shutil.copytree(catalog, tmp_path / "backup")
    script.run(f"{_CHANGES[2]}; REFRESH; INSERT INTO t VALUES (7, 7, 7); REFRESH; VERIFY")
    shutil.rmtree(catalog)
    shutil.copytree(tmp_path / "backup", catalog)
    again = Script(script.session._spark, Path(script.warehouse.root))
    again.run("UPDATE t SET v = v + 100 WHERE k = 3; REFRESH; VERIFY")
    again.run("DELETE FROM t WHERE k = 7; REFRESH; VERIFY")
    assert not _problems(again)


def test_a_catalog_that_is_gone_and_the_same_views_again(spark: SparkSession, script: Script) -> None:
    root = Path(script.warehouse.root)
    shutil.rmtree(root / "_relstate" / "catalog")
    script.run("DELETE FROM delta.`" + str(root / "sources" / "t") + "` WHERE k = 1")
    again = Script(spark, root)
    again.run(f"CREATE TABLE t (PRIMARY KEY (k)) USING delta LOCATION '{root / 'sources' / 't'}'")
    again.run("CREATE MATERIALIZED VIEW sums AS SELECT g, sum(v) AS s FROM t GROUP BY g")
    again.verify()
    again.run("INSERT INTO t VALUES (9, 9, 9); REFRESH; VERIFY")
    assert DeltaTable(again.warehouse.target("sums").path).version() == 2


def test_a_catalog_whose_last_commit_is_empty_says_so(script: Script) -> None:
    last = _last_commit(script.warehouse.catalog.path)
    before = script.rows("SELECT * FROM sums")
    last.write_text("")
    with pytest.raises(WarehouseError, match=r"the catalog at .* is damaged: version \d+ in its log holds nothing"):
        Warehouse(script.warehouse.root).read()
    last.unlink()  # as the message says
    again = Script(script.session._spark, Path(script.warehouse.root))
    again.run("REFRESH; VERIFY")
    assert again.rows("SELECT * FROM sums") == before


@pytest.mark.parametrize("writer", ["spark", "delta-rs"])
def test_a_published_table_changed_by_hand_is_not_built_upon(spark: SparkSession, script: Script, writer: str) -> None:
    path = script.warehouse.target("sums").path
    right = script.rows("SELECT * FROM sums")
    if writer == "spark":
        spark.sql(f"DELETE FROM delta.`{path}` WHERE g = 1")
    else:
        write_deltalake(
            path, pa.table({"g": pa.array([8], pa.int32()), "s": pa.array([8], pa.int64()), "_key": [b"8"]}), mode="append"
        )
    assert script.rows("SELECT * FROM sums") == right, "readers see the version that the epoch wrote"
    assert "another program changed it" in _problems(script)[0]
    script.run(_CHANGES[2])
    with pytest.raises(StateError, match=r"published table .* is not as the catalog knows it: another program changed it"):
        script.run("REFRESH")
    version = script.warehouse.read().versions_at("sums").view_version
    # By a time, nobody can tell which version that was; by its number, as the message says, it is put back.
    log = DeltaTable(path).history()
    at = next(datetime.fromtimestamp(e["timestamp"] / 1000 + 0.001) for e in log if e["version"] == version)
    spark.sql(f"RESTORE TABLE delta.`{path}` TO TIMESTAMP AS OF '{at.astimezone(timezone.utc)}'").collect()
    assert "another program changed it" in _problems(script)[0]
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {version}").collect()
    assert not _problems(script)
    script.run("REFRESH; VERIFY; UPDATE t SET v = 1; REFRESH; VERIFY")


def test_a_published_table_changed_by_hand_is_put_back_where_that_is_asked_for(spark: SparkSession, script: Script) -> None:
    path = script.warehouse.target("sums").path
    script.run(
        "CREATE MATERIALIZED VIEW kept TBLPROPERTIES ('publish.on_change' = 'restore') "
        "AS SELECT g, count(*) AS n FROM t GROUP BY g"
    )
    path = script.warehouse.target("kept").path
    spark.sql(f"UPDATE delta.`{path}` SET n = 77")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE g = 2")
    script.run(f"{_CHANGES[2]}; REFRESH; VERIFY")
    assert spark.read.format("delta").load(path).where("n = 77").count() == 0


def test_upkeep_by_others_is_fine(spark: SparkSession, script: Script) -> None:
    for path in _tables(script.warehouse).values():
        spark.sql(f"OPTIMIZE delta.`{path}`").collect()
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 60 days')")
        DeltaTable(path).optimize.compact()
        DeltaTable(path).vacuum(dry_run=False, retention_hours=200)
    assert not _problems(script)
    script.run(f"{_CHANGES[2]}; REFRESH; VERIFY; UPDATE t SET g = 1; REFRESH; VERIFY")


def _dies_dropping(what: str, root: Path, jvm: SparkSession | None) -> None:
    killed = in_process(f"DROP {what}", root, "inside_drop", jvm)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr


def test_what_a_drop_that_died_has_left_is_no_part_of_the_next_view_of_its_name(
    script: Script, jvm: SparkSession | None
) -> None:
    root = Path(script.warehouse.root)
    _dies_dropping("MATERIALIZED VIEW sums", root, jvm)
    again = Script(script.session._spark, root)
    again.run("CREATE MATERIALIZED VIEW sums AS SELECT k, v FROM t WHERE k < 3")
    again.run("VERIFY; UPDATE t SET v = v + 1; REFRESH; VERIFY")
    assert not again.warehouse.read().garbage


@pytest.fixture(scope="module")
def half_dropped(spark: SparkSession, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with a table of two rows that a process has died dropping."""
    root = shutil.copytree(built, tmp_path_factory.mktemp("half_dropped") / "warehouse")
    script = Script(spark, root)
    script.run("CREATE TABLE leftover (a INT); INSERT INTO leftover VALUES (1), (2)")
    _dies_dropping("TABLE leftover", root, spark)
    script.session.close()
    return root


@pytest.fixture
def left(half_dropped: Path, tmp_path: Path) -> Path:
    return shutil.copytree(half_dropped, tmp_path / "left")


def test_what_a_drop_that_died_has_left_is_no_part_of_the_next_table_of_its_name(spark: SparkSession, left: Path) -> None:
    again = Script(spark, left)
    again.run("CREATE TABLE leftover (a INT, b INT)")
    assert again.rows("SELECT * FROM leftover") == []
    assert not again.warehouse.read().garbage


def test_a_dropped_source_that_is_left_is_no_table_that_a_project_finds(spark: SparkSession, left: Path) -> None:
    spark.sql("DROP TABLE IF EXISTS leftover")
    spark.sql(f"CREATE TABLE leftover USING delta LOCATION '{left / 'sources' / 'leftover'}'")
    project = build_project(parse_text("CREATE MATERIALIZED VIEW m AS SELECT a FROM leftover"))
    # Spark's catalog still has the name.
    with pytest.raises(DeclarationError, match=r"table leftover (is neither declared|of Spark's catalog cannot be read)"):
        sync_project(spark, Warehouse(left), project)


def test_a_drop_that_died_does_not_take_what_somebody_made_there_since(spark: SparkSession, left: Path) -> None:
    path = left / "sources" / "leftover"
    shutil.rmtree(path)
    write_deltalake(str(path), pa.table({"a": [5]}))
    again = Script(spark, left)
    again.run("DROP MATERIALIZED VIEW sums")
    assert DeltaTable(str(path)).to_pyarrow_table().to_pydict() == {"a": [5]}


def test_state_changed_by_hand_is_not_built_upon(spark: SparkSession, script: Script) -> None:
    spark.sql(f"DELETE FROM delta.`{_tables(script.warehouse)['state']}` WHERE epoch = 1")
    assert "another program changed it" in _problems(script)[0]
    script.run(_CHANGES[2])
    with pytest.raises(StateError, match=r"its state .* another program changed it \(DELETE at version"):
        script.run("REFRESH")
    _rebuilt(script)


@pytest.mark.parametrize("damage", ["gone", "cut off"])
def test_a_file_of_state_that_is_damaged_is_one_line_and_says_what_to_do(script: Script, damage: str) -> None:
    for file in Path(_tables(script.warehouse)["state"]).rglob("*.parquet"):
        if damage == "gone":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:40])
        for crc in file.parent.glob(f".{file.name}.crc"):
            crc.unlink()
    script.run(_CHANGES[2])
    error = script.error("REFRESH")
    assert isinstance(error, RelstateError)
    assert "--full-refresh sums" in str(error)
    assert len(str(error).splitlines()) == 1
    _rebuilt(script)


def test_an_error_of_spark_inside_an_epoch_is_one_line(script: Script) -> None:
    script.run("CREATE MATERIALIZED VIEW s AS SELECT k, sequence(1, 3, IF(v > 1000, -1, 1)) AS q FROM t")
    script.run("UPDATE t SET v = 1001 WHERE k = 1")
    error = script.error("REFRESH")
    assert re.fullmatch(r"view s, epoch \d+: Spark could not compute it: .*Illegal sequence boundaries.*mend .*", str(error))
    script.run("UPDATE t SET v = 1 WHERE k = 1; REFRESH; VERIFY")


@pytest.mark.parametrize("table", ["state", "published"])
def test_a_folder_that_is_gone(script: Script, table: str) -> None:
    shutil.rmtree(_tables(script.warehouse)[table])
    assert "no Delta table" in _problems(script)[0]
    script.run(_CHANGES[2])
    with pytest.raises(RelstateError, match="--full-refresh sums"):
        script.run("REFRESH")
    _rebuilt(script)


def test_a_view_without_a_complete_epoch_is_not_verified(script: Script) -> None:
    script.session._registry.add_view(ViewDeclaration("late", "SELECT k FROM t"))
    with pytest.raises(RelstateError, match="late is not verified: it has no complete epoch; run it first"):
        script.verify()


_JOINS = {
    "inner": "SELECT a.g, b.s FROM a JOIN b ON a.g = b.g",
    "outer": "SELECT a.g, b.s FROM a LEFT JOIN b ON a.g = b.g",
    "semi": "SELECT g, s FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.g = a.g AND b.s < a.s)",
}


def test_join_state_without_rows_that_it_had_is_not_built_upon(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    for name in ("a", "b"):
        script.run(f"CREATE TABLE {name} (g INT, s STRING); INSERT INTO {name} VALUES (1, 'x'), (2, 'y'), (2, 'z')")
    for name, query in _JOINS.items():
        script.run(f"CREATE MATERIALIZED VIEW {name}_of_groups AS {query.replace(' b ', ' (SELECT DISTINCT g, s FROM b) b ')}")
    state = script.warehouse.read()
    for view in state.views.values():
        spark.sql(f"DELETE FROM delta.`{script.warehouse.state_path(view)}` WHERE table_id < {view.tables[-1].table_id}")
    script.run("DELETE FROM b WHERE g = 2; DELETE FROM a WHERE g = 1")
    with pytest.raises(RelstateError, match="3 views were left behind"):
        script.run("REFRESH")
    list(EpochRunner(spark, script.warehouse).run(full_refresh=list(state.views)))
    script.run("VERIFY; INSERT INTO b VALUES (2, 'a'); REFRESH; VERIFY")
