"""SQL scripts over a warehouse: what ``relstate sql`` runs."""

from relstate_dagster.jobs.script.session import Result, ScriptSession

__all__ = ["Result", "ScriptSession"]
