"""The release of Spark that a session runs on."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from relstate_dagster.state_lib.errors import EnvironmentProblem


def is_since(session: SparkSession, major: int, minor: int) -> bool:
    """Whether a session's Spark is that release or a later one.

    Raises
    ------
    EnvironmentProblem
        Spark's version is in no form that is known.
    """
    release = re.match(r"(\d+)\.(\d+)", session.version)
    if release is None:
        raise EnvironmentProblem(f"Spark calls itself {session.version}, which is no version as 4.2.0 is")
    return (int(release[1]), int(release[2])) >= (major, minor)
