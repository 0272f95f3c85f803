"""The command ``relstate``: one file a verb."""

from relstate_dagster.cli.app import app, main

__all__ = ["app", "main"]
