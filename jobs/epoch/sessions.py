"""Sessions with the settings that a piece of work needs, apart from the user's session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

#: What a plan's meaning depends on; stored with the view and set again in every epoch.
MEANING = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.caseSensitive")


def meaning_of(spark: SparkSession) -> dict[str, str]:
    """The settings of a session that decide what a query means."""
    return {key: str(spark.conf.get(key)) for key in MEANING}


def session_for(spark: SparkSession, settings: Mapping[str, str], *, adaptive: bool) -> SparkSession:
    """A session of its own on the same Spark.

    ``adaptive`` is off for small epochs: adaptive execution runs every stage as a job of its own and plans again in
    between, which costs more than it can save there; and it would run a lazily shared change set at once.
    """
    session = spark.newSession()
    for key, value in settings.items():
        session.conf.set(key, value)
    session.conf.set("spark.sql.adaptive.enabled", str(adaptive).lower())
    # Silently skipped files would be silently wrong views.
    session.conf.set("spark.sql.files.ignoreMissingFiles", "false")
    session.conf.set("spark.sql.files.ignoreCorruptFiles", "false")
    return session


@contextmanager
def transaction(session: SparkSession, app_id: str, version: int) -> Iterator[None]:
    """Make the one Delta commit inside idempotent.

    A MERGE takes its transaction id from the session only. Left set, a stale version would silently drop later writes,
    so it is unset whatever happens, and the session is used for nothing else.
    """
    session.conf.set("spark.databricks.delta.write.txnAppId", app_id)
    session.conf.set("spark.databricks.delta.write.txnVersion", str(version))
    try:
        yield
    finally:
        session.conf.unset("spark.databricks.delta.write.txnAppId")
        session.conf.unset("spark.databricks.delta.write.txnVersion")
