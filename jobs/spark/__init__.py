"""How a Spark session with Delta comes to be: Java, the two jars, and the session itself."""

from jobs.spark.session import SparkSettings, create_session

__all__ = ["SparkSettings", "create_session"]
