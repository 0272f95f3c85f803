"""A warehouse in Azure Storage, as Azurite has it: epochs, repairs, and no commit lost by two kinds of writers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests import azurite
from tests.epoch import store_checks
from tests.sizes import Resized

pytestmark = pytest.mark.azure


@pytest.fixture(scope="module")
def _store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with azurite.served(tmp_path_factory.mktemp("azurite")):
        azurite.reach(spark)
        yield


@pytest.fixture
def root(_store: None) -> str:
    return f"{azurite.ROOT}/a folder/{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("by_spark", [False, True], ids=["by the driver", "by Spark"])
def test_epochs_of_all_kinds_of_state(
    spark: SparkSession, root: str, monkeypatch: pytest.MonkeyPatch, resized: Resized, by_spark: bool
) -> None:
    if by_spark:
        store_checks.leave_to_spark(monkeypatch, resized)
    script = store_checks.epochs_of_all_kinds_of_state(spark, root)
    script.run("DROP MATERIALIZED VIEW b; DROP MATERIALIZED VIEW a")
    script.run("CREATE MATERIALIZED VIEW a AS SELECT count(*) AS n FROM t; REFRESH; VERIFY")


def test_the_next_run_repairs_a_killed_one(spark: SparkSession, root: str) -> None:
    store_checks.a_killed_run_is_repaired(spark, root)


def test_two_kinds_of_writers_lose_nothing(spark: SparkSession, root: str) -> None:
    """Spark's Delta renames a file that must not be there yet, delta-rs puts one: either finds the other's."""
    store_checks.two_kinds_of_writers_lose_nothing(spark, root)


def test_writers_of_the_catalog_lose_nothing(root: str) -> None:
    store_checks.writers_of_the_catalog_lose_nothing(root)
