"""Delta's commits to S3 by Spark: each version is written once.

As delta-rs does it, whoever else writes.

Delta's own log stores for S3 keep the writers of one driver apart, or want a DynamoDB. Since Hadoop 3.4.2 S3A can make a
file by a put that S3 refuses where there is one, but only Java can ask for it. So one small class is compiled when Spark has
started, by the compiler that Spark itself generates code with, and added to what it loads classes from.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from relstate_dagster.jobs.engine.cache import cache_folder
from relstate_dagster.state_lib.lake.files import write_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLASS_NAME: Final = "relstate.ConditionalS3LogStore"
_SOURCE: Final = Path(__file__).with_name("ConditionalS3LogStore.java")


def add_log_store(spark: SparkSession) -> None:
    """Let Spark's driver find the log store, compiled unless cached.

    Executors make no commits.
    """
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    source = _SOURCE.read_text()
    folder = cache_folder() / "classes" / hashlib.sha256(f"{spark.version}\n{source}".encode()).hexdigest()[:16]
    if not (folder / f"{CLASS_NAME.replace('.', '/')}.class").exists():
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(source)
        for name, code in dict(compiler.getBytecodes()).items():
            write_once(str(folder / f"{name.replace('.', '/')}.class"), code)
    loader.addURL(jvm.java.io.File(f"{folder}/").toURI().toURL())
