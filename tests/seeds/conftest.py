"""One warehouse for each file: its tests follow each other, as the statements of the document do."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.seeds.shown import Shown


@pytest.fixture(scope="module")
def shown(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return Shown(spark, tmp_path_factory.mktemp("seed") / "warehouse")
