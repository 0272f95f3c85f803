"""SQL scripts over a warehouse: what ``relstate sql`` runs."""

from relstate_dagster.jobs.script.session import Result, ScriptSession
from relstate_dagster.jobs.script.shown import failure_shown, rows_shown

__all__ = ["Result", "ScriptSession", "failure_shown", "rows_shown"]
