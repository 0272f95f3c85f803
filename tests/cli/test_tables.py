"""What ``relstate run`` prints."""

from __future__ import annotations

from relstate_dagster.cli.tables import recomputed
from relstate_dagster.jobs.view_epoch.reports import ViewReport


def test_views_that_were_not_computed_incrementally_are_told_with_the_reason() -> None:
    reports = [
        ViewReport("a", 3, "incremental", None),
        ViewReport("b", 3, "full", "recomputed because …"),
        ViewReport("c", 2, "full", "the view's refresh.policy is full", skipped=True),
    ]
    assert recomputed(reports) == ["b: full, recomputed because …"]
