"""The Delta logs that a Spark session keeps open, by their paths."""

from __future__ import annotations

from pyspark.sql import SparkSession

from state_lib.lake.log import DeltaLog


def forget_replaced(session: SparkSession, path: str) -> None:
    """Let Spark open a Delta table again if it was deleted and made again, or put back from a copy, since Spark opened it.

    What Spark has open is compared with the log by the time of its newest commit. Spark Connect has no way to say so; there
    another version of the table is noticed, and another table is not.
    """
    jvm = getattr(session, "_jvm", None)
    if jvm is None:
        return
    logs, folder = jvm.org.apache.spark.sql.delta.DeltaLog, jvm.org.apache.hadoop.fs.Path(path)
    opened = logs.forTable(session._jsparkSession, folder).unsafeVolatileSnapshot()
    version = int(opened.version())
    if version >= 0 and DeltaLog(path).modified_ms(version) != int(opened.logSegment().lastCommitFileModificationTimestamp()):
        logs.invalidateCache(session._jsparkSession, folder)
