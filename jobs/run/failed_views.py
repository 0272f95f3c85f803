"""Views that failed in this run, with their errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from relstate_dagster.jobs.catalog.entries import Problem, ViewEntry
from relstate_dagster.jobs.view_epoch.error_messages import explained
from relstate_dagster.jobs.view_epoch.reports import ViewReport
from relstate_dagster.state_lib.errors import EpochError, RelstateError

#: Errors that no data, table or Spark can cause.
_FAULTS: Final = (AssertionError, AttributeError, LookupError, NameError, TypeError)


@dataclass(slots=True)
class FailedViews:
    """Views left behind by one run, in the order in which that was found.

    Parameters
    ----------
    problems : of all of them, those that wait for another one included.
    """

    problems: dict[str, Problem] = field(default_factory=dict)
    _errors: list[RelstateError] = field(default_factory=list)
    _faults: list[Exception] = field(default_factory=list)

    def __contains__(self, name: str) -> bool:
        return name in self.problems

    def failed(self, view: ViewEntry, error: Exception, epoch: int | None, pins: Mapping[str, str]) -> ViewReport:
        """Note a view that could not be computed."""
        known = explained(view.name, epoch, error)
        if known is not error:
            known.__cause__ = error
        if isinstance(error, _FAULTS):
            self._faults.append(error)
        else:
            self._errors.append(known)
        reason = str(known)
        for named in (f"view {view.name}, epoch {epoch}: ", f"view {view.name}: "):
            reason = reason.removeprefix(named)
        return self._noted(view, Problem(reason, epoch, pins))

    def waits(self, view: ViewEntry, upstream: str) -> ViewReport:
        """Note a view that waits for one that was left behind."""
        return self._noted(view, Problem(f"waits for {upstream}, which was left behind"))

    def _noted(self, view: ViewEntry, problem: Problem) -> ViewReport:
        self.problems[view.name] = problem
        return ViewReport(
            view=view.name,
            epoch=view.last_epoch or 0,
            strategy=view.strategy,
            reason=view.reason,
            skipped=True,
            problem=problem.reason,
        )

    def raise_if_any(self) -> None:
        """Raise what was noted, once everything else is done.

        Raises
        ------
        RelstateError : the error of the one view, or an EpochError with those of several.
        Exception : an error that is a fault of this package, before all others.
        """
        for fault in self._faults:
            raise fault
        different = {str(error): error for error in self._errors}
        if len(different) == 1:
            raise self._errors[0]
        if different:
            raise EpochError(f"{len(self._errors)} views were left behind:\n" + "\n".join(f"  {text}" for text in different))
