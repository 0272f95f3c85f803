"""The views that a run could not bring to its epoch: why, and what the run says of it at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.catalog.entries import Problem, ViewEntry
from jobs.epoch.explained import explained
from jobs.epoch.reports import ViewReport
from state_lib.errors import EpochError, RelstateError


@dataclass(slots=True)
class LeftBehind:
    """Views left behind by one run, in the order in which that was found.

    Parameters
    ----------
    errors : of views that could not be computed.
    waits_for : views over these, with the one that each waits for.
    """

    errors: dict[str, Exception] = field(default_factory=dict)
    waits_for: dict[str, str] = field(default_factory=dict)
    problems: dict[str, Problem] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.problems

    def failed(self, view: ViewEntry, error: Exception, epoch: int | None, pins: Mapping[str, str]) -> ViewReport:
        """Note a view that could not be computed."""
        self.errors[view.name] = error
        reason = str(explained(view.name, epoch, error))
        for named in (f"view {view.name}, epoch {epoch}: ", f"view {view.name}: "):
            reason = reason.removeprefix(named)
        return self._noted(view, Problem(reason, epoch, pins))

    def waits(self, view: ViewEntry, upstream: str) -> ViewReport:
        """Note a view that waits for one that was left behind."""
        self.waits_for[view.name] = upstream
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
        RelstateError : the error of the one view, or what several were left behind for.
        Exception : an error that is a fault of this package.
        """
        if not self.errors:
            return
        for name, error in self.errors.items():
            if _is_fault(name, error):
                raise error
        texts = dict.fromkeys(str(explained(name, None, error)) for name, error in self.errors.items())
        if len(texts) == 1:
            name, error = next(iter(self.errors.items()))
            known = explained(name, self.problems[name].epoch, error)
            if known is error:
                raise error
            raise known from error
        raise EpochError(f"{len(self.errors)} views were left behind:\n" + "\n".join(f"  {text}" for text in texts))


def _is_fault(name: str, error: Exception) -> bool:
    """Whether an error is of no kind that data, tables or Spark can cause."""
    if isinstance(error, RelstateError):
        return False
    return isinstance(error, AssertionError | AttributeError | KeyError | NameError | TypeError | IndexError)
