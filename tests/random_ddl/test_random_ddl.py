"""A few seeds of random declarations, changes and damage; `python -m tests.random_ddl.soak` runs as many as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.random_ddl.world import World


@pytest.mark.parametrize("seed", [3, 11])
def test_never_wrong_and_never_stuck(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    World(spark, tmp_path, seed).steps(8)
