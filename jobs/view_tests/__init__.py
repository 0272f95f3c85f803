"""Runs tests of views: each case in its own warehouse, an epoch a step."""

from relstate_dagster.jobs.view_tests.runner import CaseReport, ViewTestRunner

__all__ = ["CaseReport", "ViewTestRunner"]
