"""Small change sets applied by the driver: one delta-rs commit and no Spark job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from relstate_dagster.jobs.declare.table_properties import DELETION_VECTORS
from relstate_dagster.jobs.view_epoch.shown_rows import NO_ROWS, ShownRows, changed_rows
from relstate_dagster.state_lib.constants import VIEW_KEY
from relstate_dagster.state_lib.lake.commit import Check, commit_once, committing, write_deltalake
from relstate_dagster.state_lib.lake.table import DeltaTable, OpenedTable
from relstate_dagster.state_lib.tuning import tuning

#: +1: the row is inserted or replaces the one of its key; -1: the row of its key is deleted.
OP = "_relstate_op"
#: Whether the published table has a row of this key, which is to be replaced or deleted.
IS_THERE = "_relstate_is_there"


@dataclass(frozen=True, slots=True)
class Published:
    """The published table's version, and the rows that entered and left it.

    ``changed`` are some of the rows that the driver has applied, with ``+`` or ``−`` in front; of a replaced one the new row.
    ``copied`` are rows that Spark has written again for others of their files.
    """

    version: int
    rows_inserted: int
    rows_deleted: int
    changed: ShownRows = NO_ROWS
    copied: int = 0

    def advice_lines(self) -> tuple[str, ...]:
        """Advice that would make such epochs cheaper."""
        changed = self.rows_inserted + self.rows_deleted
        if self.copied < max(tuning().advised_rows, tuning().advised_times * changed):
            return ()
        return (
            f"{self.copied:,} rows of the published table were written again beside {changed:,} that have changed: with "
            f"'{DELETION_VECTORS}' = 'true' in the view's TBLPROPERTIES they stay where they are",
        )


def append_changes(
    table: OpenedTable, changes: pa.Table, app_id: str, txn_version: int, metadata: str, check: Check
) -> Published:
    """Append rows that are all new. ``changes``: the view's columns, ``_key``, ``OP`` and ``IS_THERE``."""
    changes = changes.drop_columns([IS_THERE])
    rows = changes.drop_columns([OP])

    def write(newest: DeltaTable) -> dict[str, Any]:
        write_deltalake(newest, rows, mode="append", commit_properties=committing(app_id, txn_version, metadata))
        return {"num_target_rows_inserted": rows.num_rows}

    return _committed(table, changes, app_id, txn_version, write, check)


def merge_changes(
    table: OpenedTable, changes: pa.Table, app_id: str, txn_version: int, metadata: str, check: Check
) -> Published:
    """Insert, replace and delete rows by their key.

    ``changes``: as for :func:`append_changes`, one row a key.
    """
    changes = changes.drop_columns([IS_THERE])
    changes = changes.set_column(changes.schema.get_field_index(OP), OP, changes[OP].cast(pa.int64()))

    def write(newest: DeltaTable) -> dict[str, Any]:
        merging = newest.merge(
            changes,
            f"v.`{VIEW_KEY}` = c.`{VIEW_KEY}`",
            source_alias="c",
            target_alias="v",
            commit_properties=committing(app_id, txn_version, metadata),
        )
        merging = merging.when_matched_delete(f"c.`{OP}` < 0")
        merging = merging.when_matched_update_all(f"c.`{OP}` > 0", except_cols=[OP])
        merging = merging.when_not_matched_insert_all(f"c.`{OP}` > 0", except_cols=[OP])
        return merging.execute()

    return _committed(table, changes, app_id, txn_version, write, check)


def _committed(table: OpenedTable, changes: pa.Table, app_id: str, txn_version: int, write: Any, check: Check) -> Published:
    made = commit_once(table, app_id, txn_version, write, check)
    if made is None:
        return Published(table.latest().version(), 0, 0)
    version, metrics = made
    updated = int(metrics.get("num_target_rows_updated", 0))
    inserted = int(metrics.get("num_target_rows_inserted", 0)) + updated
    deleted = int(metrics.get("num_target_rows_deleted", 0)) + updated
    shown = changed_rows(changes.drop_columns([VIEW_KEY]), OP)
    return Published(version, inserted, deleted, shown)
