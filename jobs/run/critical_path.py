"""Seconds from each view to the last one over it, by past epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relstate_dagster.jobs.catalog.entries import ViewEntry


def critical_paths(views: Sequence[ViewEntry]) -> Mapping[str, float]:
    """The longest path from each view through the views over it.

    A view that starts late on a long path makes the run longer; one on a short path does not.

    Parameters
    ----------
    views : of one epoch, each after those that it reads.
    """
    found = {view.name: 0.0 for view in views}
    for view in reversed(views):
        found[view.name] += _seconds(view)
        for name in found.keys() & set(view.reads) - {view.name}:
            found[name] = max(found[name], found[view.name])
    return found


def _seconds(view: ViewEntry) -> float:
    """Seconds of an epoch of a view.

    Those of its last ones, else of its backfill, else one.
    """
    last = [costs[-1].seconds for costs in view.costs.changes.values()]
    if view.last_epoch is not None and last:
        return max(last)
    return 1.0 if view.costs.full is None else view.costs.full.seconds
