from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.epoch.scripts import Script


@pytest.fixture
def script(spark: SparkSession, tmp_path: Path) -> Script:
    return Script(spark, tmp_path / "warehouse")
