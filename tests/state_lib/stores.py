"""How the tests make a store of one or a few tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_store import StateStore
from relstate_dagster.state_lib.table_schema import (
    KeyPart,
    MergeRule,
    StateColumn,
    StateKind,
    StateTableDesc,
    StateTableSchema,
)


def table(
    table_id: int,
    columns: str,
    key: Sequence[KeyPart | str],
    merge: MergeRule = MergeRule.NEWEST,
    *,
    label: str = "t",
    vnode_count: int = 1,
    first_vnode_count: int | None = None,
) -> StateTableDesc:
    """A table of ``name type; name type`` columns, distributed by the first column of its key."""
    parsed = tuple(StateColumn(*column.strip().split(" ", 1)) for column in columns.split(";"))
    parts = tuple(part if isinstance(part, KeyPart) else KeyPart(part) for part in key)
    schema = StateTableSchema(
        label, StateKind.VALUE_STATE, parsed, parts, min(1, len(parts)), tuple(p.column for p in parts[:1]), merge
    )
    return StateTableDesc(table_id, schema, vnode_count, first_vnode_count or vnode_count)


def created(spark: SparkSession, path: Path, *descs: StateTableDesc) -> StateStore:
    store = StateStore(spark, StateFiles(str(path / "state")), descs)
    store.create()
    return store
