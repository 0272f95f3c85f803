"""Policy of compaction: when state is rewritten, how far, and with how many vnodes.

The work is done by :mod:`.state_lib.compaction`.

After an epoch, where it is cheap; by ``relstate compact``, large tables as well. Neither writes the catalog: an epoch reads
the newest version of its view's state up to which there is nothing but compactions (:mod:`.jobs.targets.chain`). Vnode
counts are in the catalog, and change with the commit that ends an epoch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.operators.closed_groups import closed_groups
from relstate_dagster.jobs.plan.nodes import Aggregate, Join, PlanNode
from relstate_dagster.jobs.targets.chain import epoch_txn_version
from relstate_dagster.jobs.view_epoch.findings import StateFound
from relstate_dagster.jobs.view_epoch.inputs import state_found
from relstate_dagster.jobs.view_epoch.plan import run_limits
from relstate_dagster.jobs.view_epoch.steps import Maintain
from relstate_dagster.jobs.view_epoch.view_epoch import StateCommit
from relstate_dagster.state_lib.compaction import (
    ClosedRows,
    ExpiredRows,
    empty_tables,
    has_many_runs,
    merge_small_runs,
    rewrite_tables,
)
from relstate_dagster.state_lib.constants import TABLE_ID
from relstate_dagster.state_lib.lake.statistics import DataFile
from relstate_dagster.state_lib.state_files import StateFiles, partition_of
from relstate_dagster.state_lib.state_store import StateStore
from relstate_dagster.state_lib.table_schema import StateKind, StateTableDesc
from relstate_dagster.state_lib.vnode import fitting_vnode_count


@dataclass(frozen=True, slots=True)
class CompactReport:
    """Result of one compaction of a view's state.

    ``rows`` are those of each rewritten table, by its id.
    """

    view: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rewritten: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class StateAfterEpoch:
    """A view's state tables after an epoch.

    Parameters
    ----------
    tables : the state tables, with vnode counts that fit what they hold.
    merged_rows : rows of the tables that have no unmerged runs now, by table id.
    step : as it was done.
    """

    tables: tuple[StateTableDesc, ...]
    merged_rows: Mapping[int, int]
    step: Maintain


def maintain(
    session: SparkSession,
    step: Maintain,
    files: StateFiles,
    state: CatalogState,
    view: ViewEntry,
    commit: StateCommit,
    epoch: int,
) -> StateAfterEpoch:
    """Rewrite tables that are due, merge small runs, and let vnode counts grow.

    Parameters
    ----------
    step : the rule by which tables are due.
    files : of the view's state.
    view : the view as it was before the epoch.
    commit, epoch : of the epoch that has just been published.
    """
    there = files.at(commit.version)
    found = state_found(view, there)
    fitting = tuple(
        replace(t, vnode_count=fitting_vnode_count(t.schema, t.vnode_count, found.bytes[t.table_id])) for t in view.tables
    )
    if state.last_of(view) is None:
        return StateAfterEpoch(fitting, commit.rows, step.for_state(StateFound({}, {})))
    expired, closed = expired_rows(view, there), closed_rows(view)
    step = step.for_state(replace(found, expired=frozenset(expired), closed=frozenset(closed)))
    dropped = {**(expired if step.drops_expired else {}), **(closed if step.drops_closed else {})}
    if step.empties:
        # Where another commit came first the rows stay, and the next epoch deletes them.
        version = files.table.latest().version()
        txn_version = epoch_txn_version(epoch) + 1
        empty_tables(files.path, step.empties, version=version, app_id=view.application, txn_version=txn_version)
    rewritten = _rewrite(session, files, state, view, step.rewrites, epoch, dropped, by_driver=True)
    if has_many_runs(there):
        merge_small_runs(files.table)
    return StateAfterEpoch(fitting, {**rewritten, **dict.fromkeys(step.empties, 0)}, step)


def compact_view(
    session: SparkSession, warehouse: Warehouse, state: CatalogState, view: ViewEntry, *, is_claimed: bool = False
) -> CompactReport:
    """Rewrite all tables of a view that have more than one run.

    Small runs that remain are merged.

    Parameters
    ----------
    is_claimed : no epoch of the view is on its way, which would take for stored what expires now, or is closed.
    """
    started = time.perf_counter()
    files = StateFiles(warehouse.state_path(view))
    before = files.at(None)
    assert view.last_epoch is not None
    expired = {**closed_rows(view), **expired_rows(view, before)} if is_claimed else {}
    unmerged = [t.table_id for t in view.tables if t.table_id in expired or _has_runs(before, t.table_id)]
    is_small = sum(f.bytes for f in before if f.partition[TABLE_ID] in unmerged) <= run_limits().maintain.most_bytes
    rewritten = _rewrite(session, files, state, view, unmerged, view.last_epoch, expired, by_driver=is_small)
    after = files.at(None)
    if has_many_runs(after):
        merge_small_runs(files.table)
        after = files.at(None)
    return CompactReport(
        view.name,
        len(before),
        len(after),
        sum(f.bytes for f in before),
        sum(f.bytes for f in after),
        tuple(rewritten),
        time.perf_counter() - started,
    )


def expired_rows(view: ViewEntry, files: tuple[DataFile, ...]) -> dict[int, ExpiredRows | ClosedRows]:
    """Expired rows of a view's state, by table.

    Empty where no file has a row that is old enough. All of the view's tables expire at once, so that they keep agreeing with
    each other.
    """
    until = view.expiry.until
    if until is None or view.state_ttl is None:
        return {}
    found = expiring(view.node_tables, until)
    row_by_row = {table_id for table_id, rows in found.items() if rows.by_table is None}
    oldest = [f.lower.get("epoch") for f in files if f.partition[TABLE_ID] in row_by_row]
    return {**found} if any(epoch is None or epoch <= until for epoch in oldest) else {}


def expiring(tables: Mapping[PlanNode, Sequence[StateTableDesc]], until: int) -> dict[int, ExpiredRows]:
    """Rows of joins, and groups of aggregates, last written in an epoch or before it.

    Materialized input of windows, top-n and temporal filters does not expire, and neither do the view's own rows.
    """
    found: dict[int, ExpiredRows] = {}
    for node, descs in tables.items():
        if isinstance(node, Join):
            found |= {desc.table_id: ExpiredRows(until) for desc in descs}
        elif isinstance(node, Aggregate) and node.group:
            first = descs[0].table_id
            for desc in descs:
                is_of_group = desc.schema.kind is StateKind.VALUE_STATE
                found[desc.table_id] = ExpiredRows(until) if is_of_group else ExpiredRows(until, node.group, first)
    return found


def closed_rows(view: ViewEntry) -> dict[int, ExpiredRows | ClosedRows]:
    """Rows of groups that watermarks have closed, by state table.

    There are none if state expires anyway.
    """
    if view.state_ttl is not None or view.expiry.until is not None:
        return {}
    found = closed_groups(view.plan, view.watermarks)
    tables = view.node_tables if found else {}
    return {desc.table_id: ClosedRows(closed.condition) for node, closed in found.items() for desc in tables[node]}


def _has_runs(files: tuple[DataFile, ...], table_id: int) -> bool:
    own = [f for f in files if f.partition[TABLE_ID] == table_id]
    return len(own) > len({partition_of(f) for f in own}) or any(f.lower.get("epoch") != f.upper.get("epoch") for f in own)


def _rewrite(
    session: SparkSession,
    files: StateFiles,
    state: CatalogState,
    view: ViewEntry,
    table_ids: Sequence[int],
    epoch: int,
    expired: Mapping[int, ExpiredRows | ClosedRows],
    *,
    by_driver: bool,
) -> dict[int, int]:
    if not table_ids:
        return {}
    table = files.table.latest()
    version, newest = table.version(), table.transaction_version(view.application)
    if newest is None or newest > epoch_txn_version(epoch) + 1:
        return {}  # a later epoch is on its way; it will see to it
    store = StateStore(session, files, view.tables)
    log = view.tables[-1].table_id
    readers = [state.views[name].last_epoch for name in state.dependents(view.name) if name in state.views]
    horizon = min([epoch, *(e for e in readers if e is not None)])
    done = rewrite_tables(
        store,
        table_ids,
        version=version,
        app_id=view.application,
        txn_version=epoch_txn_version(epoch) + 1,
        # Views over this one read its change log from their own last epoch on.
        merged_until={log: horizon},
        expired=expired,
        by_driver=by_driver,
    )
    if done is None:
        return {}
    return {n: sum(f.rows for f in store.files.of(done, frozenset((n,)))) for n in table_ids}
