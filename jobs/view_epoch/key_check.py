"""Checks of declared primary keys, before an epoch writes anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Scan, walk
from relstate_dagster.jobs.sources.file_layout import struct_of
from relstate_dagster.jobs.sources.key_files import (
    KeyProblem,
    are_compared_by_arrow,
    changed_keys,
    files_with,
    new_keys,
    problem_with_new,
)
from relstate_dagster.jobs.sources.pins import ChangeRange, Pin
from relstate_dagster.jobs.sources.protocol import Source
from relstate_dagster.jobs.sources.snapshot_files import SnapshotFiles
from relstate_dagster.jobs.sources.whole_keys import keys_in_order
from relstate_dagster.jobs.view_epoch.inputs import EpochInputs
from relstate_dagster.jobs.view_epoch.plan import RunLimits, run_limits
from relstate_dagster.state_lib.collected import DriverLimits, collected, frame_of
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.statistics import row_count
from relstate_dagster.state_lib.lookup_keys import LookupKeys

#: A source as far as it has been checked: its name, the version checked, and the version before (None for all rows).
CheckedKey: TypeAlias = tuple[str, int, int | None]


def check_primary_keys(
    session: SparkSession,
    state: CatalogState,
    inputs: EpochInputs,
    names: Sequence[str],
    found: Mapping[str, ChangeRange],
    checked: set[CheckedKey],
) -> None:
    """Check keyed sources.

    All rows before the first backfill that reads them, later only keys that came in.

    ``checked`` remembers, within one run, what another view has had checked already.

    Raises
    ------
    SourceError : a key occurs more than once, or is NULL; names the source and one such key.
    """
    since, limits = inputs.since, run_limits()
    for name in names:
        entry = state.sources[name]
        # All files of a version that is read in slices are checked before the first of them.
        until = inputs.epoch.pins[name].whole
        pinned = None if since is None else since.pins.get(name)
        before = _known_until(state, name, until) if pinned is None else pinned.whole
        place = (name, until.version, None if before is None else before.version)
        if place in checked or (before is not None and before.is_same(until)):
            continue
        changed = found.get(name) if pinned is None or pinned.first_files is None else None
        if changed is None and before is not None and before.version < until.version:
            changed = inputs.source(name).changed_since(before)
        source = inputs.source(name).source
        if before is not None and changed is not None:
            problem = _problem_in_changes(session, inputs, source, before, until, changed, limits)
        else:
            problem = _problem_in_all(session, source, until, limits.keys)
        if problem is not None:
            raise SourceError(
                f"source {name} ({entry.path}) is declared with PRIMARY KEY ({', '.join(entry.primary_key)}), but at version "
                f"{until.version} {problem}"
            )
        checked.add(place)


def _problem_in_changes(
    session: SparkSession,
    inputs: EpochInputs,
    source: Source,
    before: Pin,
    until: Pin,
    changed: ChangeRange,
    limits: RunLimits,
) -> KeyProblem | None:
    """The first problem with the keys of rows that came in."""
    if changed.files is not None and all(file.weight < 0 for file in changed.files):
        return None  # rows were only deleted
    schema = struct_of(until.schema_json)
    is_small = changed.changed_bytes <= limits.compared_bytes and are_compared_by_arrow(schema, source.key)
    keys = _changed_keys(session, source, before, until, changed, limits.driver) if is_small else None
    if keys is not None:
        new = new_keys(keys, source.key)
        if isinstance(new, KeyProblem):
            return new
        if not new.num_rows:  # updates: the files of before are not even listed
            return None
        held = inputs.source(source.name).files.before(changed) or source.files(before)
        if held.are_rows:
            return _problem_with_new(session, new, source.key, schema, held, limits.searched_rows)
    changes = source.changes(session, before, until, changed)
    if changes is None:
        return None
    key = columns_of(source.key)
    came_in = changes.where(f"{WEIGHT} > 0").select(*key).distinct()
    same = [F.col(f"now.{k}").eqNullSafe(F.col(f"new.{k}")) for k in key]
    rows = source.snapshot(session, until).select(*key).alias("now")
    return _first_problem(rows.join(F.broadcast(came_in.alias("new")), reduce(and_, same), "left_semi"), source.key)


def _problem_with_new(
    session: SparkSession, new: pa.Table, key: Sequence[str], schema: T.StructType, held: SnapshotFiles, most_rows: int
) -> KeyProblem | None:
    """The first of some new keys that a source had already.

    Spark searches if much has to be read.
    """
    files = files_with(new, key, held)
    rows = row_count(files)
    if rows is not None and rows <= most_rows:
        return problem_with_new(new, key, replace(held, files=files))
    columns = columns_of(key)
    keys = F.broadcast(frame_of(session, new, T.StructType([T.StructField(name, schema[name].dataType) for name in key])))
    there = held.read(session, _narrowest(new, key, held)).select(*columns)
    found = there.join(keys, list(key), "left_semi").select(*columns).limit(1).collect()
    return KeyProblem({name: found[0][name] for name in key}, 2) if found else None


def _narrowest(new: pa.Table, key: Sequence[str], held: SnapshotFiles) -> LookupKeys | None:
    """The values of the key column by which fewest rows are read."""
    known = [LookupKeys.of(column, new[column], null_safe=False) for column in key]
    return min((keys for keys in known if keys is not None), key=held.rows_read, default=None)


def _changed_keys(
    session: SparkSession, source: Source, before: Pin, until: Pin, changed: ChangeRange, limits: DriverLimits
) -> pa.Table | None:
    """The keys that changed and their weights, where the driver can hold them."""
    layout = source.layout(until.version)
    if layout is not None and changed.files is not None:
        return changed_keys(layout, changed.files, source.key)
    changes = source.changes(session, before, until, changed)
    return None if changes is None else collected(changes.select(*columns_of(source.key), WEIGHT), limits.collected_bytes)


def _problem_in_all(session: SparkSession, source: Source, pin: Pin, most_keys: int) -> KeyProblem | None:
    """The first problem with the keys of a whole source."""
    found = source.files(pin)
    by_driver = found.have(source.key) and are_compared_by_arrow(struct_of(pin.schema_json), source.key)
    keys = keys_in_order(source.path, found.files, source.key) if by_driver else None
    if keys is not None and keys.most_rows <= most_keys:
        return keys.problem()
    return _first_problem(source.snapshot(session, pin).select(*columns_of(source.key)), source.key)


def _known_until(state: CatalogState, name: str, until: Pin) -> Pin | None:
    """The newest pin up to which a source's keys are checked.

    Views with this key were built on it.
    """
    key = state.sources[name].primary_key
    built = [
        state.epochs[view.last_epoch].pins.get(name)
        for view in state.views.values()
        if view.plan is not None and view.last_epoch is not None and view.last_epoch in state.epochs
        if any(isinstance(n, Scan) and n.relation == name and n.key == key for n in walk(view.plan))
    ]
    same = [pin for pin in built if pin is not None and pin.table_uuid == until.table_uuid]
    return max(same, key=lambda pin: pin.version, default=None)


def _first_problem(rows: DataFrame, key: Sequence[str]) -> KeyProblem | None:
    columns = columns_of(key)
    counted = rows.groupBy(*columns).agg(F.count(F.lit(1)).alias("_rows"))
    is_null = F.lit(False)
    for column in columns:
        is_null = is_null | F.col(column).isNull()
    bad = counted.where((F.col("_rows") > 1) | is_null).limit(1).collect()
    return KeyProblem({name: bad[0][name] for name in key}, bad[0]["_rows"]) if bad else None
