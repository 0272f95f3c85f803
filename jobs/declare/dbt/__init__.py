"""Projects of dbt, read from their manifests: models as views, tests as checks."""

from relstate_dagster.jobs.declare.dbt.declarations import dbt_declarations
from relstate_dagster.jobs.declare.dbt.manifest import read_manifest

__all__ = ["dbt_declarations", "read_manifest"]
