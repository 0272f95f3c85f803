"""What other houses use of the Spark side."""

from jobs.catalog.entries import SourceEntry, ViewEntry
from jobs.catalog.state import CatalogState
from jobs.epoch.compaction import CompactReport
from jobs.epoch.next_epoch import next_stages
from jobs.epoch.reports import VerifyReport, ViewReport
from jobs.epoch.runner import EpochRunner
from jobs.epoch.snapshot import Snapshot, ViewSnapshot, snapshot
from jobs.epoch.vacuum import VacuumReport
from jobs.idle import idle_reports
from jobs.outlook import Does, Outlook, outlook
from jobs.registry import Registry
from jobs.state_rows import state_rows
from jobs.sync import sync_project
from jobs.warehouse import Warehouse

__all__ = [
    "CatalogState",
    "CompactReport",
    "Does",
    "EpochRunner",
    "Outlook",
    "Registry",
    "Snapshot",
    "SourceEntry",
    "VacuumReport",
    "VerifyReport",
    "ViewEntry",
    "ViewReport",
    "ViewSnapshot",
    "Warehouse",
    "idle_reports",
    "next_stages",
    "outlook",
    "snapshot",
    "state_rows",
    "sync_project",
]
