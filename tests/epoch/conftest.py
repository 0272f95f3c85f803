from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.epoch.clocks import SetClock
from tests.epoch.scripts import Script


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture(params=["lent", pytest.param("own", marks=pytest.mark.nightly)])
def jvm(request: pytest.FixtureRequest, spark: SparkSession) -> SparkSession | None:
    """JVM of a process that a test kills.

    It is the suite's, or, in ``make test-nightly``, one that ends with the process.
    """
    return spark if request.param == "lent" else None


@pytest.fixture
def script(spark: SparkSession, tmp_path: Path) -> Script:
    return Script(spark, tmp_path / "warehouse")
