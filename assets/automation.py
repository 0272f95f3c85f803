"""When Dagster asks for an asset below views by itself."""

from __future__ import annotations

from typing import Any

from dagster import AutomationCondition


def when_views_change() -> AutomationCondition[Any]:
    """As ``AutomationCondition.eager()``, for an asset that reads views for which Dagster asks by itself.

    ``eager()`` asks for an asset in the same run as the views that it reads, before anybody knows whether they change. This
    waits until a view has been materialized, which one in which nothing has changed is not.
    """
    changed = AutomationCondition.any_deps_match(AutomationCondition.newly_updated()).with_label("any_deps_updated")
    return AutomationCondition.eager().replace("any_deps_updated", changed).with_label("when_views_change")
