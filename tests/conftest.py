"""What all tests of a process share: one Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from relstate_dagster.state_lib.sizing import changed_sizing
from tests.sizes import Resized

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from relstate_dagster.state_lib.lake.storage import Store


@pytest.fixture
def resized() -> Iterator[Resized]:
    """Sets sizes for one test: ``resized(driver_change_bytes=0)``."""
    with ExitStack() as sizes:
        yield lambda **changes: sizes.enter_context(changed_sizing(**changes))


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    from relstate_dagster.jobs.spark import SparkSettings, create_session

    # Google's connector is fetched where its tests are asked for.
    with_gcs = any(item.get_closest_marker("gcs") for item in request.session.items)
    stores: tuple[Store, ...] = ("s3", "azure", "gcs") if with_gcs else ("s3", "azure")
    settings = SparkSettings(
        master="local[2]", driver_memory="3g", shuffle_partitions=2, app_name="relstate-tests", stores=stores
    )
    session = create_session(settings)
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the session as `spark`, so that `-m "not spark"` is the fast suite."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
