"""The session starts with Delta, quietly, and leaves nothing in the working directory."""

from __future__ import annotations

import hashlib
import http.server
import subprocess
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.engine import SparkSettings, jars, java
from relstate_dagster.jobs.engine.workloads import Workload, session_for
from relstate_dagster.state_lib.errors import EnvironmentProblem
from relstate_dagster.state_lib.lake.commit import create_plain_table
from relstate_dagster.state_lib.row_encoding import encode_key
from relstate_dagster.state_lib.row_encoding.spark_codec import KEY_FUNCTION, use_key_function


def test_session_writes_and_merges_delta(spark, tmp_path):
    path = tmp_path / "table"
    spark.sql(f"CREATE TABLE delta.`{path}` (a INT, b STRING) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed'='true')")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'x'), (2, 'y')")
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT 2 AS a, 'z' AS b) s ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = s.b"
    )
    assert sorted(map(tuple, spark.read.format("delta").load(str(path)).collect())) == [(1, "x"), (2, "z")]
    changes = spark.read.option("readChangeFeed", "true").option("startingVersion", 2).format("delta").load(str(path))
    assert sorted(row._change_type for row in changes.collect()) == ["update_postimage", "update_preimage"]


def test_session_has_the_settings_that_views_rely_on(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    # A page and the header of its array fit one region of a heap of up to 2 GB.
    page = spark._jvm.org.apache.spark.SparkEnv.get().memoryManager().pageSizeBytes()
    assert 0 < page + 16 <= 1024 * 1024
    assert not Path("spark-warehouse").exists()


def test_delta_does_not_keep_all_tables_that_it_has_opened(spark, tmp_path):
    """Each takes megabytes of plans, and Delta keeps 10,000 by default."""
    schema = T.StructType([T.StructField("k", T.LongType())])
    for n in range(110):
        create_plain_table(str(tmp_path / f"t{n}"), schema, {})
        assert spark.read.format("delta").load(str(tmp_path / f"t{n}")).columns == ["k"]
    loader = spark._jvm.Thread.currentThread().getContextClassLoader()
    logs = spark._jvm.java.lang.Class.forName("org.apache.spark.sql.delta.DeltaLog$", True, loader)
    kept = logs.getDeclaredField("deltaLogCache")
    kept.setAccessible(True)
    assert 90 <= kept.get(logs.getField("MODULE$").get(None)).get().size() <= 100


@pytest.mark.parametrize(("master", "cores"), [("local[3]", 3), ("local", 1), ("local[2,4]", 2), ("yarn", None)])
def test_cores_of_a_master(master, cores):
    assert SparkSettings(master=master).local_cores == cores


def test_master_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("RELSTATE_MASTER", "sc://example:15002")
    assert SparkSettings().is_remote


@pytest.fixture
def empty_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RELSTATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RELSTATE_MAVEN_URL", raising=False)
    return tmp_path


@pytest.fixture
def repository(tmp_path):
    """A Maven repository on loopback, as a folder and its address."""
    folder = tmp_path / "repository"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_jar_is_fetched_once_from_the_mirror(empty_home, repository, monkeypatch):
    folder, address = repository
    jar = jars.Jar("a.b", "c", "1", hashlib.sha256(b"jar").hexdigest())
    in_repository = folder / "a" / "b" / "c" / "1" / "c-1.jar"
    in_repository.parent.mkdir(parents=True)
    in_repository.write_bytes(b"jar")
    settings = empty_home / "home" / ".m2" / "settings.xml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0"><mirrors><mirror>'
        f"<mirrorOf>*</mirrorOf><url>{address}/</url></mirror></mirrors></settings>"
    )
    assert jars.find_jar(jar) is None
    assert jars.fetch_jar(jar).read_bytes() == b"jar"
    assert jars.find_jar(jar) == empty_home / "cache" / "jars" / "a" / "b" / "c" / "1" / "c-1.jar"


def test_jar_with_another_checksum_is_refused_and_not_kept(empty_home, repository, monkeypatch):
    folder, address = repository
    monkeypatch.setenv("RELSTATE_MAVEN_URL", address)
    jar = jars.Jar("a", "c", "1", "0" * 64)
    (folder / "a" / "c" / "1").mkdir(parents=True)
    (folder / "a" / "c" / "1" / "c-1.jar").write_bytes(b"an error page")
    with pytest.raises(EnvironmentProblem, match="SHA-256"):
        jars.fetch_jar(jar)
    assert not [path for path in (empty_home / "cache").rglob("*") if path.is_file()]


def test_missing_jar_says_where_to_put_it(empty_home, repository, monkeypatch):
    monkeypatch.setenv("RELSTATE_MAVEN_URL", repository[1])
    with pytest.raises(EnvironmentProblem, match=r"RELSTATE_MAVEN_URL.*put the jar at"):
        jars.fetch_jar(jars.Jar("a", "absent", "1", "0"))
    assert not [path for path in (empty_home / "cache").rglob("*") if path.is_file()]


def test_java_of_a_wrong_release_is_passed_over(empty_home, monkeypatch):
    old = empty_home / "java8"
    (old / "bin").mkdir(parents=True)
    (old / "bin" / "java").touch()
    (old / "release").write_text('JAVA_VERSION="1.8.0_402"\n')
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(empty_home))
    monkeypatch.setattr(java, "_from_wheel", lambda: None)
    with pytest.raises(EnvironmentProblem, match=r"JAVA_HOME: Java 8 at .*PATH: none.*relstate-dagster\[jdk\]"):
        java.find_java()


def _java_in(home, release):
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    (home / "release").write_text(f'JAVA_VERSION="{release}.0.1"\n')
    return java._java_at(home, "test")


def test_java_home_wins_then_path_then_the_wheel(empty_home, monkeypatch):
    named, on_path, in_wheel = (
        _java_in(empty_home / name, release) for name, release in (("named", 17), ("on_path", 21), ("wheel", 25))
    )
    monkeypatch.setattr(java, "_from_wheel", lambda: in_wheel)
    monkeypatch.setenv("PATH", str(on_path.home / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(named.home))
    assert java.find_java().home == named.home
    monkeypatch.delenv("JAVA_HOME")
    assert java.find_java().home == on_path.home
    monkeypatch.setenv("PATH", str(empty_home))
    assert java.find_java().home == in_wheel.home


def test_shim_drops_only_what_java_lacks(empty_home, tmp_path):
    home = tmp_path / "a java's home"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    removed = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", removed, "$x"]
    for release, expected in ((17, ["-cp", "a b", "", removed, "$x"]), (25, ["-cp", "a b", "", "$x"])):
        shim = java.spark_java_home(java.Java(home, release, "test")) / "bin" / "java"
        printed = subprocess.run([str(shim), *arguments], capture_output=True, text=True, check=True).stdout
        assert printed.splitlines() == expected


@pytest.mark.spark
def test_every_session_encodes_keys_by_the_compiled_function(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """Sessions that the user has opened have it as well, and no warning is logged."""
    use_key_function(use=False)
    functions = spark._jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    functions.dropFunction(spark._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(KEY_FUNCTION))
    theirs = spark.newSession()
    assert theirs.sql("SHOW FUNCTIONS LIKE 'relstate*'").collect() == []
    lent = session_for(theirs, {}, Workload.SMALL)
    assert caplog.messages == []
    for session in (theirs, lent, theirs.newSession()):
        key = encode_key([(F.col("id"), T.LongType(), False, False)])
        plan = session.range(1).select(key.alias("key"))._jdf.queryExecution().analyzed().toString()
        assert "encode(" in plan
