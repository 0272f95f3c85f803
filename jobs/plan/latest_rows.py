"""State table of the latest rows of a window's partitions.

Of each partition it has its last rows, in the order of the window, and the carrier: the row before the first of them. A
partition without a carrier is there as a whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from relstate_dagster.jobs.plan.nodes import LatestRows
from relstate_dagster.state_lib.table_schema import KeyPart, StateColumn, StateTableSchema

#: Rows of the partition up to the carrier, its own included; NULL in other rows.
PLACE: Final = "_latest_place"
IS_CARRIER: Final = f"({PLACE} IS NOT NULL)"
#: Old and new rows of a partition are computed apart: the last partition column of all texts.
VERSION: Final = "_latest_version"
#: The place of a row among the kept ones, from 1; and that of the row whose results are computed, if they are one by one.
AT: Final = "_latest_at"
TARGET: Final = "_latest_target"


def running_column(number: int) -> str:
    """The column of a running value, in the carrier."""
    return f"_latest_{number}"


def latest_rows_table(latest: LatestRows, whole: StateTableSchema) -> StateTableSchema:
    """The state table, next to that of a window's whole input."""
    running = (StateColumn(value.output.name, value.output.data_type) for value in latest.running)
    return replace(
        whole,
        label="latest rows",
        columns=(*whole.columns, *running),
        storage_key=(*whole.storage_key, KeyPart(PLACE)),
    )
