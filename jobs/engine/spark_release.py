"""The installed Spark, known by its jars before a JVM starts."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from relstate_dagster.state_lib.errors import EnvironmentProblem


def spark_release() -> str:
    """Major and minor number of the installed Spark, as ``4.1``.

    Raises
    ------
    EnvironmentProblem
        No Spark is installed.
    """
    return ".".join(_version_of("spark-core_2.13").split(".")[:2])


def hadoop_release() -> str:
    """Release of Hadoop's client in the installed Spark; a client of an object store must be of the same.

    Raises
    ------
    EnvironmentProblem
        No Spark is installed.
    """
    return _version_of("hadoop-client-api")


def spark_jars() -> Path:
    """Folder of the jars that Spark starts with.

    Raises
    ------
    EnvironmentProblem
        No Spark is installed.
    """
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home) / "jars"
    # Found without being imported, which takes 0.5 s.
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise EnvironmentProblem("PySpark is not installed: `pip install pyspark`, or set SPARK_HOME")
    return Path(found.origin).parent / "jars"


def _version_of(artifact: str) -> str:
    """The version in the name of a jar of Spark; vendors add a name of their own to it."""
    folder = spark_jars()
    for jar in folder.glob(f"{artifact}-*.jar"):
        version = re.fullmatch(rf"{re.escape(artifact)}-(\d+\.\d+\.\d+).*\.jar", jar.name)
        if version is not None:
            return version[1]
    raise EnvironmentProblem(f"{folder} has no {artifact}: it is no folder of Spark 4 with Scala 2.13")
