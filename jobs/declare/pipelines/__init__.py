"""Projects of Spark Declarative Pipelines: datasets as views, flows as their queries."""

from relstate_dagster.jobs.declare.pipelines.declarations import pipeline_declarations
from relstate_dagster.jobs.declare.pipelines.spec import spec_file

__all__ = ["pipeline_declarations", "spec_file"]
