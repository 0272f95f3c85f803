"""Reports of epochs, verifications and checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.declare.checks import Check
from relstate_dagster.jobs.plan.explain import explain_plan
from relstate_dagster.jobs.view_epoch.shown_rows import NO_ROWS, ShownRows


@dataclass(frozen=True, slots=True)
class ViewReport:
    """One view in one epoch.

    Parameters
    ----------
    rows_in : for each relation read, rows inserted and deleted since the view's last epoch.
    rows_inserted, rows_deleted : rows that entered and left the published view (an update counts as both).
    late_rows : rows of a changelog that came after a newer row of their key, and changed nothing; those of closed groups.
    malformed_records : of files that this run read into the view's sources: records that are no rows.
    changed : some of the rows that entered and left the view, with the sign of each in front, where the driver applied them.
    state_rows_written : rows appended to the view's state, change log included.
    state_rows, state_bytes : of the view's state after the epoch, all runs that are not merged yet included.
    bytes_in : of the files that the change of what the view reads is in, or all of it in a backfill.
    spark_jobs : that the epoch took; ``None`` where Spark does not tell.
    of_full : seconds that the epoch took by those of the last one that computed all rows, where that is known.
    seconds : by stage: ``plan``, ``compute_and_commit``, ``publish``, ``compact``.
    source_versions : pinned version of each source.
    picture : the plan as an SVG, with the rows that went along its edges in this epoch; empty where nothing was written.
    stages : the steps of the epoch as they were run, a line each (:mod:`.jobs.view_epoch.steps`).
    skipped : nothing had changed, nothing was written.
    advice : what would make such epochs cheaper, in sentences.
    remarks : what else there is to know, in sentences.
    problem : why the view was left behind, and did not reach the epoch.
    is_backfill : all rows were computed, since the view had no earlier epoch.
    is_repair : the epoch was begun by an earlier run, which ended before it was complete.
    """

    view: str
    epoch: int
    strategy: str
    reason: str | None
    rows_in: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    rows_inserted: int = 0
    rows_deleted: int = 0
    late_rows: int = 0
    malformed_records: int = 0
    changed: ShownRows = NO_ROWS
    state_rows_written: int = 0
    state_rows: int | None = None
    state_bytes: int | None = None
    bytes_in: int = 0
    spark_jobs: int | None = None
    of_full: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    source_versions: Mapping[str, int] = field(default_factory=dict)
    view_version: int | None = None
    plan_text: str = ""
    picture: str = ""
    stages: tuple[str, ...] = ()
    skipped: bool = False
    advice: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    problem: str | None = None
    is_repair: bool = False
    is_backfill: bool = False


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """A view compared with its query run in full, in both directions.

    Parameters
    ----------
    problem : why they could not be compared; the view then counts as different.
    sampled_keys : how many keys were compared; ``None`` where all rows were.
    has_expired : whether state of the view may have expired (``state.ttl``), which is then why it differs.
    missing, unexpected : some of those rows.
    """

    view: str
    equal: bool
    missing_rows: int
    unexpected_rows: int
    epoch: int
    seconds: float
    problem: str | None = None
    sampled_keys: int | None = None
    has_expired: bool = False
    missing: ShownRows = NO_ROWS
    unexpected: ShownRows = NO_ROWS

    @property
    def is_error(self) -> bool:
        """Whether the view is not what it should be; one whose state expires may differ."""
        return not self.equal and not self.has_expired


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Result of a declared check on a view's last epoch.

    Parameters
    ----------
    failing : rows that do not meet the condition; of ``unique`` keys that occur more than once.
    found : in words, what was found.
    shown : some of the rows, or keys, that fail.
    seconds : of the pass over the view that this check was a part of.
    problem : why the check could not be made; it then counts as failed.
    """

    view: str
    check: Check
    passed: bool
    epoch: int | None
    failing: int = 0
    found: str = ""
    shown: ShownRows = NO_ROWS
    seconds: float = 0.0
    problem: str | None = None

    @property
    def is_error(self) -> bool:
        """Whether it failed, and is no mere warning."""
        return not self.passed and self.check.severity == "error"


def unchanged(state: CatalogState, view: ViewEntry) -> ViewReport:
    """The report of a view that is up to date."""
    last = view.last_epoch
    assert last is not None
    pins = state.epochs[last].pins
    return ViewReport(
        view=view.name,
        epoch=last,
        strategy=view.strategy,
        reason=view.reason,
        source_versions={n: pins[n].version for n in view.reads if n in pins},
        view_version=state.epochs[last].versions[view.name].view_version,
        plan_text=explain_plan(view.plan, view.node_tables),
        skipped=True,
    )
