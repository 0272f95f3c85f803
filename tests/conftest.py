"""What all tests of a process share: one Spark session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests import at_night
from tests.sizes import Resized, changed_sizes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from relstate_dagster.state_lib.lake.storage import Store

#: Of every JVM that tests start. Two processes share the cores, so one thread collects. The cache is that of compiled code:
#: with the default one, dropping what was compiled and compiling it again took a fiftieth of the processor's time.
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:ReservedCodeCacheSize=512m"
#: Of those that end within seconds: the optimizing compiler took half of their processor's time, and gave nothing back.
_SHORT_LIVED = f"{_JAVA_OPTIONS} -XX:TieredStopAtLevel=1"
#: Of the suite's session, which lives for a quarter of an hour. Collections take as long as what survives them, so there are
#: few; a heap and a metaspace that grow step by step are collected as a whole at each. A quarter of its processor's time went
#: into optimizing code, most of which was then hardly run any more: what is optimized has run six times as often as by default.
#: (With nothing optimized it takes another quarter less in its first four minutes, and more once it is older than five.)
_LONG_LIVED = (
    f"{_JAVA_OPTIONS} -Xms3g -Xmn1g -XX:MetaspaceSize=256m -XX:Tier4InvocationThreshold=30000 "
    "-XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=200000"
)
#: Where Spark finds them, for its JVM and for the launcher that starts it.
_VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")


def pytest_configure() -> None:
    """Hand on the options to the processes that tests start."""
    os.environ.update(dict.fromkeys(_VARIABLES, _SHORT_LIVED))


@pytest.fixture
def resized() -> Iterator[Resized]:
    """Sets sizes for one test: ``resized(driver_change_bytes=0)``."""
    with ExitStack() as sizes:
        yield lambda **changes: sizes.enter_context(changed_sizes(**changes))


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from relstate_dagster.jobs.engine import SparkSettings, create_session
    from tests.local_files import without_processes

    # Google's connector is fetched where its tests are asked for.
    with_gcs = any(item.get_closest_marker("gcs") for item in request.session.items)
    stores: tuple[Store, ...] = ("s3", "azure", "gcs") if with_gcs else ("s3", "azure")
    settings = SparkSettings(
        master="local[2]",
        driver_memory="3g",
        shuffle_partitions=2,
        app_name="relstate-tests",
        # Each query is described for Spark's UI, which is not there.
        conf={"spark.sql.ui.explainMode": "simple"},
        stores=stores,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", _LONG_LIVED)
        session = create_session(settings)
    without_processes(session, tmp_path_factory.mktemp("classes"))
    yield session
    session.stop()


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what -m does not ask for
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what uses the session as `spark`, so that `-m "not spark"` is the fast suite; files without it come first.

    Among them are the longest tests, of minutes of processes of their own: at the end, one would be waited for alone.
    """
    # Who asks for the night gets it, of files that are named as well.
    at_night.mark(items, config.args if "not nightly" in config.option.markexpr else ())
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    files = {item.path for item in items if item.get_closest_marker("spark") is not None}
    items.sort(key=lambda item: item.path in files)
