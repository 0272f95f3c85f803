"""Views that no run computes in full: ``refresh.policy = 'incremental, strict'``.

Such a view is built once. After that its changes are followed, or the run refuses it before anything is written. All of its
rows are computed again only where the user names it for a full refresh.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.protocol import with_dependents
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.state_lib.errors import PlanError


def refusal(name: str, why: str) -> PlanError:
    """The error for a strict view that would be computed in full."""
    return PlanError(
        f"view {name} would be computed in full: {why}. Its refresh.policy is 'incremental, strict', so nothing was written. "
        f"Undo that change, or name the view in the next run: relstate run --full-refresh {name} (full_refresh in Dagster and "
        "Python; in a script, drop the view and create it again)"
    )


def is_protected(state: CatalogState, view: ViewEntry) -> bool:
    """Whether a view is strict, and readers see rows of it.

    Where a rebuild of it was asked for and is not complete, the next run goes on with it.
    """
    return view.is_strict and view.name in state.views and state.views[view.name].last_epoch is not None


def protected_over(state: CatalogState, names: Iterable[str], full_refresh: Collection[str]) -> list[str]:
    """Strict views that are rebuilt with some views, and that the user has not named."""
    found = [state.working.views[name] for name in with_dependents(state, names)]
    return sorted(view.name for view in found if is_protected(state, view) and view.name not in full_refresh)


def check_full_refresh(state: CatalogState, full_refresh: Collection[str]) -> None:
    """Check that strict views over those of a full refresh are named as well.

    Raises
    ------
    PlanError : one is not. Nothing was done.
    """
    unnamed = protected_over(state, full_refresh, full_refresh)
    if unnamed:
        raise refusal(unnamed[0], f"it reads {', '.join(full_refresh)}, of the full refresh" + _others(unnamed[1:]))


def _others(names: Collection[str]) -> str:
    return f"; so would {', '.join(names)}" if names else ""
