"""Delta's commits to S3 by Spark: each version is written once.

As delta-rs does it, whoever else writes.

Delta's own log stores for S3 keep the writers of one driver apart, or want a DynamoDB. Since Hadoop 3.4.2 S3A can make a
file by a put that S3 refuses where there is one, but only Java can ask for it: one small class does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from relstate_dagster.jobs.engine.java_classes import add_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLASS_NAME: Final = "relstate.ConditionalS3LogStore"
_SOURCE: Final = Path(__file__).with_name("ConditionalS3LogStore.java")


def add_log_store(spark: SparkSession) -> None:
    """Let Spark's driver find the log store.

    Executors make no commits.
    """
    add_classes(spark, _SOURCE)
