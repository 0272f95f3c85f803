"""Spark with Iceberg's own runtime, in an environment of its own.

There is no runtime for the newest Spark yet.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_SPARK = "4.1"
_RUNTIME = f"iceberg-spark-runtime-{_SPARK}_2.13"
_VERSION = "1.12.0"
#: What the process runs: its arguments are the jar and the warehouse, its input a statement a line.
_PROGRAM = """
import sys
from pyspark.sql import SparkSession
jar, warehouse = sys.argv[1:]
conf = {
    "spark.jars": jar,
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.warehouse": warehouse,
}
spark = SparkSession.builder.master("local[1]").config(map=conf).getOrCreate()
for statement in sys.stdin:
    spark.sql(statement)
"""


class Writer:
    """Writes Iceberg tables into a folder, as the catalog ``lake`` of a Spark session."""

    def __init__(self, folder: Path) -> None:
        mvn = shutil.which("mvn")
        assert mvn is not None, "these tests need Maven (mvn on the PATH), which fetches Iceberg's runtime"
        self.warehouse = folder / "lake"
        self._python, self._jar = folder / "venv" / "bin" / "python", folder / f"{_RUNTIME}-{_VERSION}.jar"
        artifact = f"-Dartifact=org.apache.iceberg:{_RUNTIME}:{_VERSION}"
        _run([sys.executable, "-m", "venv", str(folder / "venv")])
        _run([str(self._python), "-m", "pip", "install", "--quiet", f"pyspark~={_SPARK}.0"])
        _run([mvn, "--quiet", "dependency:get", artifact, "-Dtransitive=false"])
        _run([mvn, "--quiet", "dependency:copy", artifact, f"-DoutputDirectory={folder}"])

    def run(self, statements: Sequence[str]) -> None:
        """Run statements of one line each, in a process."""
        environment = {key: value for key, value in os.environ.items() if key not in {"SPARK_HOME", "PYTHONPATH"}}
        command = [str(self._python), "-c", _PROGRAM, str(self._jar), str(self.warehouse)]
        _run(command, input="\n".join(statements), env=environment)


def _run(command: list[str], **options: object) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr[-4000:]
