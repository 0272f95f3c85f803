"""Local files of the suite's Spark without a process for each.

Hadoop without native code starts ``chmod`` for each file that it writes, and ``readlink`` four times for each commit of a
Delta table: a hundred processes a test, of 4 ms each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_CLASS = "relstate.tests.LocalFiles"
_SETTINGS = {"fs.file.impl": _CLASS, "fs.AbstractFileSystem.file.impl": f"{_CLASS}$Context"}


def without_processes(spark: SparkSession, folder: Path) -> None:
    """Have a session and all that share its JVM open local files by the class beside this module, compiled into a folder."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(Path(__file__).with_name("LocalFiles.java").read_text())
    for name, code in dict(compiler.getBytecodes()).items():
        path = folder / f"{name.replace('.', '/')}.class"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(code)
    loader.addURL(jvm.java.io.File(f"{folder}/").toURI().toURL())
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in _SETTINGS.items():
        conf.set(name, value)
    # One is open since Spark has started, and would be found again.
    jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), conf).close()
    opened = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), conf)
    assert opened.getClass().getName() == _CLASS
