"""``TBLPROPERTIES`` for Dagster, read and checked when definitions load."""

from __future__ import annotations

from typing import Any, Final

from dagster import AssetKey, AutomationCondition, FreshnessPolicy
from dagster._utils.schedules import is_valid_cron_string

from relstate_dagster.jobs.declare import SourceDeclaration, ViewDeclaration
from relstate_dagster.jobs.declare.durations import duration
from relstate_dagster.state_lib.errors import DeclarationError

KEY: Final = "dagster.key"
GROUP: Final = "dagster.group"
OWNERS: Final = "dagster.owners"
TAGS: Final = "dagster.tags"
KINDS: Final = "dagster.kinds"
AUTOMATION: Final = "dagster.automation"
FRESHNESS: Final = "dagster.freshness"

_CRON_FIELDS: Final = 5
_CONDITIONS: Final = {
    "eager": AutomationCondition.eager,
    "on_missing": AutomationCondition.on_missing,
}


def where(view: ViewDeclaration | SourceDeclaration) -> str:
    """Return the file, line and name of a view or source, as messages begin."""
    return f"{view.path or 'view'}:{view.line}: {view.name}"


def listed(view: ViewDeclaration, key: str) -> list[str]:
    """Return the parts of a property between its commas."""
    return [part.strip() for part in view.properties.get(key, "").split(",") if part.strip()]


def asset_key(view: ViewDeclaration | SourceDeclaration) -> AssetKey:
    """Read ``dagster.key``: ``mart/sales``; the name without one."""
    text = view.properties.get(KEY, view.name)
    parts = [part.strip() for part in text.split("/")]
    if not all(parts):
        raise DeclarationError(f"{where(view)}: '{KEY}' = {text!r} has an empty part; write 'mart/sales'.")
    return AssetKey(parts)


def tags(view: ViewDeclaration) -> dict[str, str]:
    """Read ``dagster.tags``: ``tier=gold, team=ops``."""
    found: dict[str, str] = {}
    for part in listed(view, TAGS):
        name, equals, text = part.partition("=")
        if not equals:
            raise DeclarationError(f"{where(view)}: '{TAGS}' holds {part!r}; write 'name=text, …'.")
        found[name.strip()] = text.strip()
    return found


def automation_condition(view: ViewDeclaration) -> AutomationCondition[Any] | None:
    """Read ``dagster.automation``: ``eager``, ``on_missing``, or ``on_cron: …``.

    As in ``on_cron: 0 6 * * * Europe/Berlin``; UTC without a zone.
    """
    text = view.properties.get(AUTOMATION)
    if text is None:
        return None
    name, colon, schedule = text.partition(":")
    if not colon and name.strip() in _CONDITIONS:
        return _CONDITIONS[name.strip()]()
    if name.strip() != "on_cron" or not colon:
        raise DeclarationError(
            f"{where(view)}: '{AUTOMATION}' = {text!r} is unknown; it is one of {', '.join(_CONDITIONS)}, 'on_cron: 0 6 * * *'."
        )
    fields = schedule.split()
    count = 1 if schedule.strip().startswith("@") else _CRON_FIELDS
    cron, zone = " ".join(fields[:count]), " ".join(fields[count:]) or "UTC"
    if not is_valid_cron_string(cron):
        raise DeclarationError(
            f"{where(view)}: '{AUTOMATION}' = {text!r}: {cron!r} is no cron schedule; write five fields, as in "
            "'on_cron: 0 6 * * *', and a time zone after them if it is not UTC."
        )
    if not _is_time_zone(zone):
        raise DeclarationError(f"{where(view)}: '{AUTOMATION}' = {text!r}: there is no time zone {zone!r}.")
    return AutomationCondition.on_cron(cron, zone)


def freshness_policy(view: ViewDeclaration) -> FreshnessPolicy | None:
    """Read ``dagster.freshness``: ``24 hours``, or ``24 hours, warn 12 hours``."""
    text = view.properties.get(FRESHNESS)
    if text is None:
        return None
    fail, comma, warn = (part.strip() for part in text.partition(","))
    try:
        if comma and not warn.lower().startswith("warn "):
            raise ValueError(f"{warn!r} does not begin with 'warn'")
        fail_window = duration(fail)
        warn_window = duration(warn[len("warn ") :].strip()) if comma else None
        if warn_window is not None and warn_window >= fail_window:
            raise ValueError("the time to warn has to be the shorter one")
    except ValueError as problem:
        raise DeclarationError(
            f"{where(view)}: '{FRESHNESS}' = {text!r}: {problem}; write '24 hours', or '24 hours, warn 12 hours'."
        ) from problem
    return FreshnessPolicy.time_window(fail_window=fail_window, warn_window=warn_window)


def _is_time_zone(name: str) -> bool:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - reads the system's files, which few projects need

    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        return False
    return True
