"""Compiled code serves other class loaders and later processes, and damage of the kept file is ignored."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

_QUERY = """
    SELECT k % 7 AS k, count(*) AS n, sum(v) AS v, max(concat('x', cast(k AS STRING))) AS t
    FROM (SELECT id AS k, cast(id AS DECIMAL(20, 2)) * 1.5 AS v FROM range(1000)) GROUP BY k % 7 ORDER BY 1
"""
_PROCESS = f"""
import json
from relstate_dagster.jobs.engine import SparkSettings, create_session
spark = create_session(SparkSettings(master="local[2]"))
rows = [str(row) for row in spark.sql({_QUERY!r}).collect()]
compiled, reused = spark._jvm.relstate.GeneratedCode.counts()
print("found", json.dumps([rows, compiled, reused]))
spark.stop()
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a process that has ended, after a second one took all from it."""
    cache = tmp_path_factory.mktemp("cache")
    first, second = _run(cache), _run(cache)
    assert first[1] > 5, "nothing was compiled"
    assert first[2] > 0, "each piece was compiled for driver and tasks"
    assert (second[0], second[1]) == (first[0], 0)
    assert second[2] >= first[1]
    return next(cache.glob("generated/*.classes"))


def _run(cache: Path) -> list[Any]:
    command = [sys.executable, "-c", _PROCESS]
    # The JVM ends after the process; its pipes are closed when it has written.
    done = subprocess.run(command, env={**os.environ, "RELSTATE_CACHE": str(cache)}, capture_output=True, text=True, check=True)
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("found ")).removeprefix("found "))


def test_a_later_process_compiles_nothing_that_an_earlier_one_compiled(kept: Path) -> None:
    assert kept.stat().st_size > 10_000
    assert [path.name for path in kept.parent.iterdir() if path.suffix == ".tmp"] == []


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_file_of_classes_is_not_used(spark: SparkSession, kept: Path, tmp_path: Path, seed: int) -> None:
    drawn, data = random.Random(seed), bytearray(kept.read_bytes())
    if drawn.random() < 0.5:
        del data[drawn.randrange(len(data)) :]
    else:
        data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
    path = tmp_path / "damaged.generated"
    path.write_bytes(bytes(data))
    assert _pieces(spark, path) == 0


def test_the_file_is_read_in_full_if_it_is_whole(spark: SparkSession, kept: Path) -> None:
    assert _pieces(spark, kept) > 5


def test_pieces_used_longest_ago_are_left_out_of_a_full_file(spark: SparkSession, tmp_path: Path) -> None:
    """The file has room for some of the pieces."""
    jvm: Any = spark._jvm
    limit, kept = 5_000, tmp_path / "kept.generated"
    code = jvm.relstate.GeneratedCode(_spark_compiler(spark), str(kept), limit)
    for n in range(12):
        time.sleep(0.005)  # the clock has milliseconds
        code.load(_key(jvm, f"int unused{n} = {n};"))
    assert code.size() == 12
    code.write()
    assert 1 < _pieces(spark, kept) < 12
    assert kept.stat().st_size < limit
    again = jvm.relstate.GeneratedCode(None, str(kept), limit)
    again.read()
    assert again.load(_key(jvm, "int unused11 = 11;"))._1().generate(None) is None
    with pytest.raises(Py4JJavaError):  # it has no compiler, and not this piece
        again.load(_key(jvm, "int unused0 = 0;"))


def _pieces(spark: SparkSession, path: Path) -> int:
    jvm: Any = spark._jvm
    code = jvm.relstate.GeneratedCode(None, str(path), 1 << 30)
    code.read()
    return int(code.size())


def _key(jvm: Any, field: str) -> Any:
    """What Spark asks its cache for: a class loader, and code of this field."""
    text = f"{field} public java.lang.Object generate(Object[] references) {{ return null; }}"
    return jvm.scala.Tuple2(None, jvm.org.apache.spark.sql.catalyst.expressions.codegen.CodeAndComment(text, _none(jvm)))


def _none(jvm: Any) -> Any:
    return jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(jvm.java.util.HashMap())


def _spark_compiler(spark: SparkSession) -> Any:
    """What Spark compiles by: the loader of its cache, or that of a cache that asks kept code first."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    field = loader.loadClass("org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator$").getDeclaredField("cache")
    field.setAccessible(True)
    local = _value(field.get(None).cache(), "localCache")
    return _value(_value(local, "defaultLoader"), "compiler")


def _value(holder: Any, name: str) -> Any:
    type_ = holder.getClass()
    while name not in [field.getName() for field in type_.getDeclaredFields()]:
        type_ = type_.getSuperclass()
    field = type_.getDeclaredField(name)
    field.setAccessible(True)
    return field.get(holder)
