"""The installed Spark, known by its files before a JVM starts."""

from __future__ import annotations

import importlib.util
import os
import re
from functools import lru_cache
from pathlib import Path

from relstate_dagster.state_lib.errors import EnvironmentProblem


def spark_release() -> str:
    """Major and minor number of the installed Spark, as ``4.1``.

    Raises
    ------
    EnvironmentProblem
        No Spark is installed.
    """
    home = os.environ.get("SPARK_HOME")
    return _release_of_jars(Path(home) / "jars") if home else _release_of_package(_package())


def hadoop_release() -> str:
    """Release of Hadoop's client in the installed Spark.

    A client of an object store must be of the same.

    Raises
    ------
    EnvironmentProblem
        No Spark is installed, or it is a client of Spark Connect alone.
    """
    return _version_of(spark_jars(), "hadoop-client-api")


def spark_jars() -> Path:
    """Folder of the jars that Spark starts with.

    Raises
    ------
    EnvironmentProblem
        No Spark is installed.
    """
    return spark_home() / "jars"


def spark_home() -> Path:
    """Folder of Spark: ``$SPARK_HOME``, else that of the package.

    Raises
    ------
    EnvironmentProblem
        No Spark is installed.
    """
    home = os.environ.get("SPARK_HOME")
    return Path(home) if home else _package()


def _package() -> Path:
    # Found without being imported, which takes 0.5 s.
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise EnvironmentProblem("PySpark is not installed: `pip install pyspark`, or set SPARK_HOME")
    return Path(found.origin).parent


@lru_cache(maxsize=4)
def _release_of_package(package: Path) -> str:
    """By PySpark's own word, since a client of Spark Connect has no jars."""
    written = re.search(r"['\"](\d+\.\d+)", (package / "version.py").read_text())
    if written is None:
        raise EnvironmentProblem(f"{package / 'version.py'} names no version: install PySpark again")
    return written[1]


@lru_cache(maxsize=4)
def _release_of_jars(folder: Path) -> str:
    return ".".join(_version_of(folder, "spark-core_2.13").split(".")[:2])


def _version_of(folder: Path, artifact: str) -> str:
    """The version in the name of a jar of Spark.

    Vendors add a name of their own to it.
    """
    for jar in folder.glob(f"{artifact}-*.jar"):
        version = re.fullmatch(rf"{re.escape(artifact)}-(\d+\.\d+\.\d+).*\.jar", jar.name)
        if version is not None:
            return version[1]
    raise EnvironmentProblem(f"{folder} has no {artifact}: it is no folder of Spark 4 with Scala 2.13")
