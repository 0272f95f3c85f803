"""`relstate repair` restores the last good version of a damaged catalog."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from relstate_dagster.cli import entry  # noqa: F401 - registers the verbs
from relstate_dagster.cli.app import app
from relstate_dagster.jobs.catalog.repair import repair
from relstate_dagster.jobs.engine.instants import utc_now
from relstate_dagster.state_lib.errors import WarehouseError
from tests.epoch.scripts import Script

_TABLES = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
INSERT INTO t VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30);
CREATE MATERIALIZED VIEW sums AS SELECT g, sum(v) AS s FROM t GROUP BY g;
CREATE MATERIALIZED VIEW largest AS SELECT max(s) AS m FROM sums;
"""


@pytest.fixture(scope="module")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse after five epochs."""
    folder = tmp_path_factory.mktemp("built") / "warehouse"
    script = Script(spark, folder)
    script.run(_TABLES)
    for n in range(4):
        script.run(f"INSERT INTO t VALUES ({n + 10}, {n}, 1); UPDATE t SET v = v + 1 WHERE k = 2; REFRESH")
    return folder


def _added(catalog: Path, version: int) -> list[Path]:
    lines = (catalog / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return [catalog / json.loads(line)["add"]["path"] for line in lines if '"add"' in line]


def _damage(spark: SparkSession, catalog: Path, kind: str) -> None:
    commits = sorted((catalog / "_delta_log").glob("*.json"))
    newest = int(commits[-1].stem)
    match kind:
        case "all rows deleted":
            spark.sql(f"DELETE FROM delta.`{catalog}`")
        case "the views deleted":
            spark.sql(f"DELETE FROM delta.`{catalog}` WHERE kind = 'view'")
        case "the newest file cut off":
            for path in _added(catalog, newest):
                path.write_bytes(path.read_bytes()[:200])
        case "files of three versions gone":
            for path in {path for n in range(newest - 2, newest + 1) for path in _added(catalog, n)}:
                path.unlink()
        case "the newest commit empty":
            commits[-1].write_text("")
        case "three commits cut off":
            for commit in commits[-3:]:
                commit.write_text(commit.read_text()[:40])
        case "checkpoints cut off":
            for checkpoint in catalog.glob("_delta_log/*.parquet"):
                checkpoint.write_bytes(b"PAR1")
        case "all files gone":
            for path in catalog.glob("level=*/*.parquet"):
                path.unlink()
    for crc in catalog.rglob(".*.crc"):
        crc.unlink()


@pytest.mark.parametrize(
    "kind",
    [
        "all rows deleted",
        "the views deleted",
        "the newest file cut off",
        "files of three versions gone",
        "the newest commit empty",
        "three commits cut off",
        "checkpoints cut off",
    ],
)
def test_views_go_on_after_a_repair(spark: SparkSession, built: Path, tmp_path: Path, kind: str) -> None:
    root = shutil.copytree(built, tmp_path / "warehouse")
    catalog = root / "_relstate" / "catalog"
    _damage(spark, catalog, kind)
    with pytest.raises(WarehouseError, match=r"the catalog at .* relstate repair goes back to"):
        Script(spark, root).warehouse.read()
    result = CliRunner().invoke(app, ["repair", "--warehouse", str(root)])
    assert result.exit_code == 0, result
    assert len(list(catalog.parent.glob("catalog-damaged-*"))) == 1
    script = Script(spark, root)
    script.run("REFRESH; VERIFY; UPDATE t SET v = v * 2 WHERE k <> 3; DELETE FROM t WHERE k = 11; REFRESH; VERIFY")
    assert script.rows("SELECT max(s) FROM sums") == script.rows("SELECT m FROM largest")
    script.run("CREATE MATERIALIZED VIEW more AS SELECT g, s FROM sums WHERE s > 10; VERIFY")
    assert repair(str(root), utc_now()) is None


def test_a_catalog_of_which_nothing_is_left_says_how_to_begin_again(spark: SparkSession, built: Path, tmp_path: Path) -> None:
    root = shutil.copytree(built, tmp_path / "warehouse")
    catalog = root / "_relstate" / "catalog"
    _damage(spark, catalog, "all files gone")
    with pytest.raises(WarehouseError, match=r"no version of the catalog .* can be read: restore .* or delete it"):
        repair(str(root), utc_now())
    shutil.rmtree(catalog)  # as the message says
    script = Script(spark, root)
    script.run(
        _TABLES.replace(
            "CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));",
            f"""
        CREATE TABLE t (PRIMARY KEY (k)) LOCATION '{root}/sources/t'; DELETE FROM t WHERE k < 4;""",
        )
    )
    script.run("INSERT INTO t VALUES (99, 9, 9); REFRESH; VERIFY")
