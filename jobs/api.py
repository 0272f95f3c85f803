"""The interface of the Spark side for the other packages."""

from relstate_dagster.jobs.catalog.entries import SourceEntry, ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.waiting import Patience
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.inspect.answers import Answers
from relstate_dagster.jobs.inspect.published_keys import KeyReport
from relstate_dagster.jobs.inspect.snapshot import Snapshot, ViewSnapshot, snapshot
from relstate_dagster.jobs.inspect.state_rows import state_rows
from relstate_dagster.jobs.inspect.view_diff import RowChange, ViewDiff, view_diff
from relstate_dagster.jobs.inspect.view_rows import arrow_rows, epoch_of_run, newest_epoch, spark_rows
from relstate_dagster.jobs.inspect.why.changes import SourceCommit
from relstate_dagster.jobs.inspect.why.inputs import Input, SourceChange
from relstate_dagster.jobs.inspect.why.report import Why, why
from relstate_dagster.jobs.registration.registry import Registry
from relstate_dagster.jobs.registration.sync import sync_project
from relstate_dagster.jobs.run.preview import Action, ViewPreview, idle_reports, is_brief_run, preview_run, preview_view
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.run.vacuum import VacuumReport
from relstate_dagster.jobs.view_epoch.compaction import CompactReport
from relstate_dagster.jobs.view_epoch.reports import CheckReport, VerifyReport, ViewReport
from relstate_dagster.jobs.view_epoch.shown_rows import ShownRows

__all__ = [
    "Action",
    "Answers",
    "CatalogState",
    "CheckReport",
    "CompactReport",
    "EpochRunner",
    "Input",
    "KeyReport",
    "Patience",
    "Registry",
    "RowChange",
    "ShownRows",
    "Snapshot",
    "SourceChange",
    "SourceCommit",
    "SourceEntry",
    "VacuumReport",
    "VerifyReport",
    "ViewDiff",
    "ViewEntry",
    "ViewPreview",
    "ViewReport",
    "ViewSnapshot",
    "Warehouse",
    "Why",
    "arrow_rows",
    "epoch_of_run",
    "idle_reports",
    "is_brief_run",
    "newest_epoch",
    "preview_run",
    "preview_view",
    "snapshot",
    "spark_rows",
    "state_rows",
    "sync_project",
    "view_diff",
    "why",
]
