"""A warehouse in Google Cloud Storage, by fake-gcs-server: epochs, repairs, and no commit lost by two kinds of writers."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from relstate_dagster.state_lib.lake.files import files_in, write_once
from relstate_dagster.state_lib.lake.folders import delete_folder, folders_in
from tests import fake_gcs
from tests.epoch import store_checks
from tests.sizes import Resized

pytestmark = pytest.mark.gcs


@pytest.fixture(scope="module")
def _store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with fake_gcs.served(tmp_path_factory.mktemp("fake_gcs")):
        fake_gcs.reach(spark)
        yield


@pytest.fixture
def root(_store: None) -> str:
    return f"gs://{fake_gcs.BUCKET}/a folder/{uuid.uuid4().hex[:8]}"


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
    """Either puts a version under the condition that there is no such object."""
    store_checks.two_kinds_of_writers_lose_nothing(spark, root)


def test_writers_of_the_catalog_lose_nothing(root: str) -> None:
    store_checks.writers_of_the_catalog_lose_nothing(root)


def test_folders_are_found_by_their_files(root: str) -> None:
    """Only Spark makes objects of folders, and not of all."""
    for path in ("a/1", "a/inner/2", "b/3", "4"):
        write_once(f"{root}/{path}", b"content")
    assert folders_in(root) == [f"{root}/a", f"{root}/b"]
    delete_folder(f"{root}/a")
    assert folders_in(root) == [f"{root}/b"]
    delete_folder(root)
    assert (folders_in(root), files_in(root)) == ([], [])
    delete_folder(root)


def test_one_of_many_log_stores_makes_a_version(spark: SparkSession, root: str) -> None:
    """Eight of the log stores that Delta takes for `gs`, as eight drivers have them, write each version at once."""
    jvm, configuration = spark._jvm, spark._jsc.hadoopConfiguration()
    assert jvm is not None
    delegating = jvm.org.apache.spark.sql.delta.storage.DelegatingLogStore
    assert delegating.getDefaultLogStoreClassName("gs").get() == "io.delta.storage.GCSLogStore"

    def write(version: int) -> str:
        store = jvm.io.delta.storage.GCSLogStore(configuration)
        actions = jvm.java.util.ArrayList(["{}"])
        path = jvm.org.apache.hadoop.fs.Path(f"{root}/t/_delta_log/{version:020}.json")
        try:
            store.write(path, actions.iterator(), False, configuration)
        except Py4JJavaError as error:
            return str(error.java_exception.getClass().getSimpleName())
        return "written"

    with ThreadPoolExecutor(8) as pool:
        for version in range(8):
            assert Counter(pool.map(write, [version] * 8)) == {"written": 1, "FileAlreadyExistsException": 7}
