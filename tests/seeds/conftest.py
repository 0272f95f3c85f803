"""One warehouse for each file: its tests follow each other, as the statements of the document do."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from tests.seeds.shown import Shown

Follow = Callable[[str], tuple[Shown, set[str]]]


@pytest.fixture(scope="module")
def warehouse_of_file(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Follow:
    """Gives a test a warehouse and the tests that have run on it: a new one where the test itself has, before later ones."""
    kept: list[tuple[Shown, set[str]]] = []

    def before(test: str) -> tuple[Shown, set[str]]:
        if not kept or test in kept[-1][1]:
            kept.append((Shown(spark, tmp_path_factory.mktemp("seed") / "warehouse"), set()))
        return kept[-1]

    return before


@pytest.fixture
def shown(request: pytest.FixtureRequest, warehouse_of_file: Follow) -> Shown:
    """The warehouse as the tests before this one leave it, whatever this process has run of them."""
    shown, done = warehouse_of_file(request.function.__name__)
    for name, test in vars(request.module).items():
        if test is request.function:
            break
        if name.startswith("test_") and name not in done and list(inspect.signature(test).parameters) == ["shown"]:
            test(shown)
            done.add(name)
    done.add(request.function.__name__)
    return shown
