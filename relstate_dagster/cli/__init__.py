"""The command ``relstate``: one file a verb."""

from relstate_dagster.cli.app import app
from relstate_dagster.cli.entry import console_script, main

__all__ = ["app", "console_script", "main"]
