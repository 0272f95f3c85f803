"""The tests of Spark's catalog on Hive's metastore, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Derby, in the process of Spark.
_DEFAULTS = """
spark.sql.catalogImplementation hive
spark.sql.warehouse.dir {folder}/tables
spark.hadoop.javax.jdo.option.ConnectionURL jdbc:derby:;databaseName={folder}/metastore;create=true
spark.driver.extraJavaOptions -Dderby.stream.error.file={folder}/derby.log
"""

_SCRIPT = """
import sys
from pathlib import Path

from relstate_dagster.jobs.engine import SparkSettings, create_session
from relstate_dagster.state_lib.errors import DeclarationError
from tests.epoch.scripts import Script

spark = create_session(SparkSettings(master="local[1]", driver_memory="1g", shuffle_partitions=1))
assert spark.conf.get("spark.sql.catalogImplementation") == "hive"
spark.sql("CREATE TABLE orders (id INT) USING delta")
spark.sql("INSERT INTO orders VALUES (7)")
script = Script(spark, Path(sys.argv[1]))
try:
    script.run("CREATE TABLE orders (id INT, PRIMARY KEY (id)); INSERT INTO orders VALUES (1)")
except DeclarationError as error:
    print("refused:", error)
script.run("CREATE TABLE free (id INT, PRIMARY KEY (id)); INSERT INTO free VALUES (1); SELECT * FROM free")
script.session.close()
print("left:", sorted(row.tableName for row in spark.sql("SHOW TABLES").collect()))
print("rows:", [row.id for row in spark.sql("SELECT id FROM default.orders").collect()])
"""


@pytest.fixture
def with_metastore(tmp_path: Path) -> dict[str, str]:
    """An environment in which Spark has a metastore."""
    (tmp_path / "spark-defaults.conf").write_text(_DEFAULTS.format(folder=tmp_path))
    return {**os.environ, "SPARK_CONF_DIR": str(tmp_path)}


@pytest.mark.nightly
@pytest.mark.parametrize("tests", ["test_catalog_tables.py", "test_published_names.py"])
def test_tables_and_names_of_a_metastore(tmp_path: Path, with_metastore: dict[str, str], tests: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            str(Path(__file__).with_name(tests)),
        ],
        env=with_metastore,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert (tmp_path / "metastore").is_dir()


def test_a_script_drops_no_table_of_a_metastore(tmp_path: Path, with_metastore: dict[str, str]) -> None:
    """A table there with the name of a source keeps its rows, and other names are taken out again."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path / "warehouse")],
        env=with_metastore,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert "another table default.orders" in said["refused"]
    assert said["left"] == "['orders']"
    assert said["rows"] == "[7]"
