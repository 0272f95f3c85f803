from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.epoch.scripts import Script


@pytest.fixture(params=["lent", pytest.param("own", marks=pytest.mark.nightly)])
def jvm(request: pytest.FixtureRequest, spark: SparkSession) -> SparkSession | None:
    """The JVM of a process that a test kills: the suite's, or (by default at night only) one that ends with the process."""
    return spark if request.param == "lent" else None


@pytest.fixture
def script(spark: SparkSession, tmp_path: Path) -> Script:
    return Script(spark, tmp_path / "warehouse")
