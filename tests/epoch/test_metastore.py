"""Tables and names of Spark's catalog where that is Hive's metastore: their tests, run in a process with one."""

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
_TESTS = ("tests/epoch/test_catalog_tables.py", "tests/epoch/test_published_names.py")


@pytest.mark.nightly
def test_tables_and_names_of_a_metastore(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(_DEFAULTS.format(folder=tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *_TESTS],
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert (tmp_path / "metastore").is_dir()
