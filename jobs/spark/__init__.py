"""How a Spark session with Delta comes to be: Java, the two jars, and the session itself."""

from relstate_dagster.jobs.spark.session import SPARKS_OWN_TASKS, SparkSettings, create_session

__all__ = ["SPARKS_OWN_TASKS", "SparkSettings", "create_session"]
