"""The suite's JVM, lent to another process.

The process starts in a second, and what kills it kills only its Python part. Claims, locks and
half-written files are left as by any other process. A process that is to take its JVM with it, or to be killed in the
middle of a Spark job, starts one of its own.
"""

from __future__ import annotations

import os
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

#: The variables by which PySpark finds a JVM that runs already.
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
#: The command line, in the JVM that its process is lent, or in its own.
COMMAND_LINE = """
from relstate_dagster.cli import console_script, start
from tests.lent_jvm import borrowed_session

session = borrowed_session()
if session is not None:
    start.create_session = lambda _settings: session
console_script()
"""


def lent(spark: SparkSession | None) -> dict[str, str]:
    """Environment variables with which a process uses a session's JVM."""
    if spark is None:
        return {}
    gateway: Any = spark.sparkContext._gateway
    return {_PORT: str(gateway.gateway_parameters.port), _SECRET: gateway.gateway_parameters.auth_token}


def borrowed_session() -> SparkSession | None:
    """A new session in the JVM lent to this process; ``None`` without one."""
    if _PORT not in os.environ:
        return None
    gateway = launch_gateway()
    jvm: Any = gateway.jvm
    context = jvm.org.apache.spark.SparkContext.getOrCreate()
    SparkContext._ensure_initialized(gateway=gateway)
    ours = SparkContext(
        gateway=gateway,
        jsc=jvm.org.apache.spark.api.java.JavaSparkContext(context),
        conf=SparkConf(_jconf=context.conf()),
    )
    # PySpark makes the session that it wraps the JVM's default one, which has to stay the suite's.
    default = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    return SparkSession(ours, default).newSession()
