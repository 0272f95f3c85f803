"""Delta's commits in S3 by Spark: each version is written once, whoever else writes, as delta-rs keeps it.

Delta's own log stores for S3 keep the writers of one driver apart, or want a DynamoDB. Since Hadoop 3.4.2 S3A can make a
file by a put that S3 refuses where there is one, but only Java can ask for it. So one small class is compiled when Spark has
started, by the compiler that Spark itself generates code with, and added to what it loads classes from.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLASS_NAME: Final = "relstate.ConditionalS3LogStore"
_SOURCE: Final = Path(__file__).with_name("ConditionalS3LogStore.java")


def add_log_store(spark: SparkSession) -> None:
    """Compile the log store and let Spark's driver find it; executors make no commits."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(_SOURCE.read_text())
    # It is read when the class is first asked for: as long as this process lives.
    folder = Path(tempfile.mkdtemp(prefix="relstate-classes-"))
    for name, code in dict(compiler.getBytecodes()).items():
        file = folder / f"{name.replace('.', '/')}.class"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(code)
    loader.addURL(jvm.java.io.File(f"{folder}/").toURI().toURL())
