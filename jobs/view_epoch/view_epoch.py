"""Compute a view's change set, and commit it with all state in one append."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.catalog.entries import ViewEntry, ViewVersions
from relstate_dagster.jobs.catalog.relations import source_relation, view_relation
from relstate_dagster.jobs.declare.kept_rows import EXTREME_ROWS, SPARE_ROWS, WINDOW_ROWS
from relstate_dagster.jobs.declare.query_function import digest_text
from relstate_dagster.jobs.engine import failpoints
from relstate_dagster.jobs.engine.spark_connect import is_remote
from relstate_dagster.jobs.operators.closed_groups import closed_groups
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.contracts import check_change_sets
from relstate_dagster.jobs.operators.flows import held_flows
from relstate_dagster.jobs.operators.old_rows import AskedForError, computed_by_spark, errors_caught
from relstate_dagster.jobs.operators.routing import compute_changes
from relstate_dagster.jobs.operators.row_set import RowSets
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.epoch_rows import Flow
from relstate_dagster.jobs.plan.new_state import Recompute
from relstate_dagster.jobs.plan.nodes import FullQuery, PlanNode, depends_on_time
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.planner.current_time import query_at
from relstate_dagster.jobs.planner.query_frames import frame_of, register_view
from relstate_dagster.jobs.planner.query_text import named_among
from relstate_dagster.jobs.targets.chain import Chain, CommitsSince, EpochCommit, Fence, epoch_txn_version, is_compaction
from relstate_dagster.jobs.view_epoch.error_messages import explained, is_of_a_value
from relstate_dagster.jobs.view_epoch.inputs import EpochInputs
from relstate_dagster.jobs.view_epoch.plan import plan_large_commit
from relstate_dagster.jobs.view_epoch.steps import ViewEpochPlan, Writer
from relstate_dagster.state_lib.constants import TABLE_ID, WEIGHT
from relstate_dagster.state_lib.errors import EpochError
from relstate_dagster.state_lib.lake.log import Commit, DeltaLog, rows_by_partition
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_store import StateStore
from relstate_dagster.state_lib.state_table import StateTable


@dataclass(frozen=True, slots=True)
class StateCommit:
    """A view's state commit: its Delta version, and rows by table id.

    ``stored`` are the rows themselves, where this process has computed them just now and holds them. ``keeps_state`` is
    whether it has the state of all nodes. ``late_rows`` of changelogs came after a newer row of their key. ``flows`` are the
    rows that nodes of the plan gave, where that is known.
    """

    version: int
    rows: dict[int, int]
    stored: pa.Table | None = None
    keeps_state: bool = True
    late_rows: int = 0
    flows: Mapping[PlanNode, Flow] = field(default_factory=dict)


def state_chain(files: StateFiles, view: ViewEntry, fence: Fence = lambda: None) -> Chain:
    """The commits of a view's state."""
    return Chain(files.table, view.name, "state", is_maintenance=is_compaction(view.application), fence=fence)


def state_commit_of(inputs: EpochInputs, before: ViewVersions | None) -> EpochCommit:
    """Identity of a view's state commit in an epoch, equal for every try."""
    base = (before or ViewVersions()).digest
    view, epoch = inputs.view, inputs.epoch
    return EpochCommit(view.name, view.generation, epoch.epoch, epoch.run_id, _digest(inputs, base), base)


def found_commit(files: StateFiles, version: int) -> StateCommit:
    """A state commit that an earlier try has made."""
    actions = DeltaLog(files.path).commit(version)
    identity = EpochCommit.of(actions)
    return StateCommit(version, _rows_by_table(actions), keeps_state=identity is None or identity.keeps_state)


def _rows_by_table(actions: Commit) -> dict[int, int]:
    return {int(k): n for k, n in rows_by_partition(actions, TABLE_ID).items()}


@dataclass(frozen=True, slots=True)
class StateBase:
    """The state that an epoch builds on, and the commit that it makes.

    Parameters
    ----------
    files : of the view's state.
    before : the versions of the view's last epoch.
    known : the state up to what the catalog knows, with compactions since; ``None`` where there is no state yet.
    wanted : names the commit to be made.
    earlier_commit : that commit, if an earlier try has made it.
    """

    files: StateFiles
    before: ViewVersions | None
    known: CommitsSince | None
    wanted: EpochCommit
    earlier_commit: StateCommit | None = None


def compute_and_commit(
    inputs: EpochInputs, plan: ViewEpochPlan, base: StateBase, *, strict: bool = False
) -> tuple[StateCommit | None, ViewEpochPlan]:
    """Compute a view's change set and append it with its state in one Delta commit.

    Parameters
    ----------
    inputs : in the session that the plan asks for.
    strict : check the change set of every operator before anything is written.

    Returns
    -------
    The commit (``None`` where nothing can have changed and nothing was written), and the plan with the commit as it was made.

    Raises
    ------
    DriverLimitExceeded : a change set has more rows than the plan lets the driver hold; nothing was written.
    StateError : the change contradicts the state, or in strict mode itself, or another run committed other data for this epoch.
    SourceError : a source's changes cannot be read.
    """
    view, epoch = inputs.view, inputs.epoch.epoch
    compute = partial(_computed_and_committed, inputs, plan, base, strict=strict)
    try:
        return compute()
    except (PySparkException, Py4JJavaError) as error:
        if plan.compute.is_of_all_rows or not is_of_a_value(error):
            raise explained(view.name, epoch, error) from error
        try:
            with errors_caught(inputs.spark):
                return compute(leaves_out_old_errors=True)
        except (PySparkException, Py4JJavaError, AskedForError):
            raise explained(view.name, epoch, error) from error


def _computed_and_committed(
    inputs: EpochInputs, steps: ViewEpochPlan, state: StateBase, *, strict: bool, leaves_out_old_errors: bool = False
) -> tuple[StateCommit | None, ViewEpochPlan]:
    view, epoch, spark = inputs.view, inputs.epoch.epoch, inputs.spark
    plan, files, known = view.plan, state.files, state.known
    compute, commit = steps.compute, steps.commit
    keeps_state = compute.recomputes is not Recompute.WITHOUT_STATE
    wanted = replace(state.wanted, keeps_state=keeps_state)
    store = StateStore(spark, files, view.tables)
    if known is None:
        store.create()
    chain, previous = state_chain(files, view), None if compute.new_state.is_all or known is None else known.known
    base = 0 if known is None else known.known
    tables: dict[PlanNode, list[StateTable]] = {
        node: [store.state_table(d.table_id, epoch=epoch, version=previous) for d in of_node]
        for node, of_node in view.node_tables.items()
    }
    context = EpochContext(
        epoch=epoch,
        new_state=compute.new_state,
        recomputes=compute.recomputes,
        node_ids={found.node: found.id for found in view.planned.stateful.nodes},
        relations=inputs,
        tables=tables,
        row_sets=RowSets(
            spark,
            shares_by_jobs=compute.holds,
            lookup_hint=compute.lookup_hint,
            single_partition=compute.shuffle_tasks == 1,
            limits=compute.limits,
            keeps_bytes=compute.keeps_bytes,
        ),
        full_query=lambda node: _full_difference(inputs, node, state.before),
        extreme_rows=EXTREME_ROWS.of(view.properties, f"view {view.name}"),
        spare_rows=SPARE_ROWS.of(view.properties, f"view {view.name}"),
        window_rows=WINDOW_ROWS.of(view.properties, f"view {view.name}"),
        instant=view.now_at(inputs.epoch.instant),
        last_instant=None if inputs.since is None else view.now_at(inputs.since.instant),
        strict=strict,
        may_have_expired=view.expiry.until is not None,
        leaves_out_old_errors=leaves_out_old_errors,
        closed=closed_groups(plan, view.watermarks),
    )
    result = compute_changes(context, plan)
    counted = check_change_sets(context.changes, view.name, epoch) if strict else {}
    mem_tables = [t.mem_table for of_node in tables.values() for t in of_node if not t.mem_table.is_empty]
    # The first commit of a view is always made, so is the one that publishes its slices, and one by which state is not kept
    # any more or filled. Of a view that has kept none before, one without rows would look like a change to its readers.
    changes_state = compute.is_of_all_rows and (keeps_state or not view.unfilled)
    is_needed = changes_state or (view.last_epoch is None and inputs.epoch.slice is None)
    if result.changes is None and not mem_tables and not is_needed:
        return None, steps
    stored: pa.Table | None = None
    computed: DataFrame | None = None
    if commit.writer is Writer.DRIVER:
        stored = store.compute(epoch, mem_tables, compute.limits.collected_bytes)
        if stored is None:
            steps = plan_large_commit(steps)
    elif commit.writer is None:
        stored, computed = store.compute_few(epoch, mem_tables, commit.most_bytes)
    if stored is not None and not stored.num_rows and not is_needed:
        return None, steps
    if stored is not None and view.last_epoch is None:
        _compute_as_spark_does(context, view, stored)
    failpoints.reached("before_state_commit")
    app, metadata = view.application, wanted.to_json()
    number = epoch_txn_version(epoch, files.table.transaction_version(app))
    check = chain.expect(base)
    if stored is not None:
        version = store.append_computed(epoch, stored, txn_app_id=app, txn_version=number, user_metadata=metadata, check=check)
    else:
        check(files.table.latest())
        version = store.append(
            epoch,
            mem_tables,
            txn_app_id=app,
            txn_version=number,
            user_metadata=metadata,
            partitions=steps.commit.tasks,
            spread=steps.commit.spreads,
            exchange=view.planned.stateful.has_exchanges,
            computed=computed,
        )
        # Spark's blind appends do not conflict: what came in between is seen only now.
        after = chain.after(base)
        if after.made_by(wanted) != version:
            chain.restore(after)
            raise EpochError(f"view {view.name}: {chain.describe(after)} at the same time; nothing was lost, run again")
    failpoints.reached("after_state_commit")
    done = replace(steps.commit, writer=Writer.SPARK if stored is None else Writer.DRIVER)
    flows = {**held_flows(context, plan), **counted}
    rows = _rows_by_table(DeltaLog(files.path).commit(version))
    committed = StateCommit(version, rows, stored, keeps_state, result.late_rows, flows)
    return committed, steps.settled(done)


def _compute_as_spark_does(context: EpochContext, view: ViewEntry, stored: pa.Table) -> None:
    """Compute the unread subqueries of an empty new view, which Spark computes too.

    They may raise, as in Spark.
    """
    if pc.any(pc.equal(stored[TABLE_ID], view.tables[-1].table_id)).as_py():
        return
    for value in computed_by_spark(view.plan):
        rows = context.changes.get(value)
        if rows is not None:
            rows.frame.collect()


def _digest(inputs: EpochInputs, base: str) -> str:
    """Digest of all that determines a change set.

    Plan, tables, pinned inputs, instant, and the commit that it builds on.
    """
    view, epoch = inputs.view, inputs.epoch
    pins = {name: epoch.pins[name].to_dict() for name in view.reads if name in epoch.pins}
    upstream = {name: inputs.versions[name].digest for name in view.reads if name in inputs.versions}
    instant = None if epoch.instant is None else epoch.instant.isoformat()
    plan = [view.planned.digest, [[name, digest_text(query)] for name, query in view.inlined.items()]]
    determining = [view.generation, plan, pins, upstream, instant, view.last_epoch, base, *view.unfilled]
    return hashlib.sha256(json.dumps(determining, sort_keys=True).encode()).hexdigest()


def _full_difference(inputs: EpochInputs, node: FullQuery, before: ViewVersions | None) -> DataFrame | None:
    view = inputs.view
    if not inputs.is_backfill and not node.always and not any(inputs.of(name).has_moved() for name in node.reads):
        return None
    result = full_query(inputs, inputs.spark).toDF(*node.column_names).withColumn(WEIGHT, F.lit(1).cast("bigint"))
    if before is None or before.view_version is None:
        return result
    held = inputs.warehouse.target(view.name).rows(inputs.spark, before.view_version)
    held = held.select(*columns_of([o.name for o in view.plan.output]))
    held = held.toDF(*node.column_names).withColumn(WEIGHT, F.lit(-1).cast("bigint"))
    return result.union(held)


def full_query(inputs: EpochInputs, session: SparkSession) -> DataFrame:
    """The view's query run in full, on the epoch's inputs and at its instant."""
    for name in inputs.view.reads:
        inputs.of(name).snapshot(session).createOrReplaceTempView(name)
    for relation in _unread(inputs):
        columns = ", ".join(f"{quoted(column.name)} {column.data_type}" for column in relation.columns)
        session.createDataFrame([], columns).createOrReplaceTempView(relation.name)
    for name, query in inputs.view.inlined.items():
        register_view(session, name, query)
    instant = inputs.view.now_at(inputs.epoch.instant)
    reads_time = depends_on_time(inputs.view.plan) or inputs.view.plan.is_of_a_day
    if instant is None or (is_remote(session) and not reads_time):
        return frame_of(session, inputs.view.query)
    return query_at(session, inputs.view.query, instant)


def _unread(inputs: EpochInputs) -> list[Relation]:
    """Relations that the view's query names and its plan does not read.

    Such as those of a common table expression that nothing uses. Spark looks them up all the same. An epoch pins no version of
    them; whatever their rows are, the view is the same.
    """
    catalog, view = inputs.catalog, inputs.view
    names = named_among((view.query, *view.inlined.values()), {*catalog.sources, *catalog.views}.difference(view.reads))
    return [
        view_relation(catalog.views[name])
        if name in catalog.views
        else source_relation(catalog.sources[name], inputs.warehouse.source(catalog.sources[name]).facts())
        for name in sorted(names)
    ]


def mv_rows(view: ViewEntry, commit: StateCommit) -> int:
    """Rows that the commit wrote to the view's own change log."""
    return commit.rows.get(view.tables[-1].table_id, 0)
