"""One warehouse for each file: its tests follow each other, as the statements of the document do."""

from __future__ import annotations

import inspect

import pytest
from pyspark.sql import SparkSession

from tests.seeds.shown import Shown


@pytest.fixture(scope="module")
def warehouse_of_file(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Shown, set[str]]:
    """The warehouse, and the tests that have run on it."""
    return Shown(spark, tmp_path_factory.mktemp("seed") / "warehouse"), set()


@pytest.fixture
def shown(request: pytest.FixtureRequest, warehouse_of_file: tuple[Shown, set[str]]) -> Shown:
    """The warehouse as the tests before this one leave it, also where another process has run those."""
    shown, done = warehouse_of_file
    for name, test in vars(request.module).items():
        if test is request.function:
            break
        if name.startswith("test_") and name not in done and list(inspect.signature(test).parameters) == ["shown"]:
            test(shown)
            done.add(name)
    done.add(request.function.__name__)
    return shown
