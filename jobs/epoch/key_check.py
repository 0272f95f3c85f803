"""Checks that a declared primary key is one, before an epoch that would build on it writes anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.catalog.entries import CatalogState
from jobs.epoch.inputs import EpochInputs
from jobs.operators.context import columns_of
from jobs.sources.delta_source import ChangeRange
from jobs.warehouse import Warehouse
from state_lib.constants import WEIGHT
from state_lib.errors import SourceError

#: A source as far as it has been checked: its name, the version checked, and the version before (None for all rows).
CheckedKey: TypeAlias = tuple[str, int, int | None]


def check_primary_keys(
    session: SparkSession,
    warehouse: Warehouse,
    state: CatalogState,
    inputs: EpochInputs,
    names: Sequence[str],
    found: Mapping[str, ChangeRange],
    checked: set[CheckedKey],
) -> None:
    """Check keyed sources: all rows before a backfill, later only the keys of rows that came in.

    ``checked`` remembers, within one run, what another view has had checked already.

    Raises
    ------
    SourceError : a key occurs more than once, or is NULL; names the source and one such key.
    """
    since = inputs.since
    for name in names:
        entry = state.sources[name]
        until = inputs.epoch.pins[name]
        before = None if since is None else since.pins.get(name)
        place = (name, until.version, None if before is None else before.version)
        changed = found.get(name)
        if place in checked or (before is not None and before.version == until.version):
            continue
        source = warehouse.source(entry)
        rows = source.snapshot(session, until).select(*columns_of(entry.primary_key))
        if before is not None and changed is not None:
            if changed.rows_inserted == 0 and changed.rows_deleted > 0:
                continue
            changes = source.changes(session, before, until, changed, with_row_id=False)
            if changes is None:
                continue
            came_in = changes.where(F.col(WEIGHT) > 0).select(*columns_of(entry.primary_key)).distinct()
            rows = rows.join(F.broadcast(came_in), list(entry.primary_key), "left_semi")
        problem = _first_problem(rows, entry.primary_key)
        if problem is not None:
            raise SourceError(
                f"source {name} ({entry.path}) is declared with PRIMARY KEY ({', '.join(entry.primary_key)}), but at version "
                f"{until.version} {problem}; remove the duplicates or declare it without a key"
            )
        checked.add(place)


def _first_problem(rows: DataFrame, key: Sequence[str]) -> str | None:
    columns = columns_of(key)
    counted = rows.groupBy(*columns).agg(F.count(F.lit(1)).alias("_rows"))
    is_null = F.lit(False)
    for column in columns:
        is_null = is_null | F.col(column).isNull()
    bad = counted.where((F.col("_rows") > 1) | is_null).limit(1).collect()
    if not bad:
        return None
    shown = ", ".join(f"{name} = {bad[0][name]!r}" for name in key)
    return f"{bad[0]['_rows']} rows have {shown}" if bad[0]["_rows"] > 1 else f"a row has a NULL in it ({shown})"
