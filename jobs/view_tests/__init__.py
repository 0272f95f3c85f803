"""Tests of views, run: each case in a warehouse of its own, with an epoch for every step."""

from relstate_dagster.jobs.view_tests.runner import CaseReport, ViewTestRunner

__all__ = ["CaseReport", "ViewTestRunner"]
