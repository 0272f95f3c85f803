"""Checks that a declared primary key is one, before an epoch that would build on it writes anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.catalog.entries import CatalogState
from jobs.epoch.inputs import SMALL_CHANGE_BYTES, EpochInputs
from jobs.operators.context import columns_of
from jobs.sources.change_files import readable_as_files
from jobs.sources.delta_log import table_bytes
from jobs.sources.delta_source import ChangeRange, DeltaSource, Pin
from jobs.sources.key_files import KeyProblem, has_deletion_vectors, problem_in_changes, problem_in_files
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
        if before is not None and changed is not None:
            if changed.rows_inserted == 0 and changed.rows_deleted > 0:
                continue
            problem = _problem_in_changes(session, source, before, until, changed)
        else:
            problem = _problem_in_all(session, source, until)
        if problem is not None:
            raise SourceError(
                f"source {name} ({entry.path}) is declared with PRIMARY KEY ({', '.join(entry.primary_key)}), but at version "
                f"{until.version} {problem}; remove the duplicates or declare it without a key"
            )
        checked.add(place)


def _problem_in_changes(
    session: SparkSession, source: DeltaSource, before: Pin, until: Pin, changed: ChangeRange
) -> KeyProblem | None:
    """The first problem with the keys of rows that came in."""
    small = changed.files is not None and changed.changed_bytes <= SMALL_CHANGE_BYTES
    if small and not has_deletion_vectors(source.path, before.version):
        return problem_in_changes(source.path, changed.files, source.key, before.version) if changed.files else None
    changes = source.changes(session, before, until, changed, with_row_id=False)
    if changes is None:
        return None
    key = columns_of(source.key)
    came_in = changes.where(F.col(WEIGHT) > 0).select(*key).distinct()
    same = [F.col(f"now.{k}").eqNullSafe(F.col(f"new.{k}")) for k in key]
    rows = source.snapshot(session, until).select(*key).alias("now")
    return _first_problem(rows.join(F.broadcast(came_in.alias("new")), reduce(and_, same), "left_semi"), source.key)


def _problem_in_all(session: SparkSession, source: DeltaSource, pin: Pin) -> KeyProblem | None:
    """The first problem with the keys of a whole source."""
    facts = source.facts(pin.version)
    plain = readable_as_files(facts.properties, facts.partition_columns)
    small = plain and table_bytes(source.path) <= SMALL_CHANGE_BYTES
    if small and not has_deletion_vectors(source.path, pin.version):
        return problem_in_files(source.path, pin.version, source.key)
    return _first_problem(source.snapshot(session, pin).select(*columns_of(source.key)), source.key)


def _first_problem(rows: DataFrame, key: Sequence[str]) -> KeyProblem | None:
    columns = columns_of(key)
    counted = rows.groupBy(*columns).agg(F.count(F.lit(1)).alias("_rows"))
    is_null = F.lit(False)
    for column in columns:
        is_null = is_null | F.col(column).isNull()
    bad = counted.where((F.col("_rows") > 1) | is_null).limit(1).collect()
    return KeyProblem({name: bad[0][name] for name in key}, bad[0]["_rows"]) if bad else None
