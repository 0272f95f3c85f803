"""A Spark session with Delta: Java, two jars, and the session itself."""

from relstate_dagster.jobs.engine.session import SPARKS_OWN_TASKS, SparkSettings, create_session

__all__ = ["SPARKS_OWN_TASKS", "SparkSettings", "create_session"]
