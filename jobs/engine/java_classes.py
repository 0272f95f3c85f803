"""Java classes of this package, compiled when Spark has started.

They are compiled by the compiler that Spark itself generates code with, kept in the cache, and added to what Spark loads
classes from.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relstate_dagster.jobs.engine.cache import cache_folder
from relstate_dagster.state_lib.lake.files import write_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_classes(spark: SparkSession, source: Path) -> Path:
    """Let Spark's driver find the classes of a Java file; return their jar."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    text = source.read_text()
    digest = hashlib.sha256(f"{spark.version}\n{text}".encode()).hexdigest()[:16]
    jar = cache_folder() / "compiled" / f"{source.stem}-{digest}.jar"
    if not jar.exists():
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(text)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as files:
            for name, code in dict(compiler.getBytecodes()).items():
                files.writestr(f"{name.replace('.', '/')}.class", bytes(code))
        write_once(str(jar), packed.getvalue())
    loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
    return jar
