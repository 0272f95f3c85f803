"""All views of a project as one multi-asset: one JVM for each run.

That is so for every executor of Dagster.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckResult,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetsDefinition,
    DataVersion,
    MaterializeResult,
    Output,
    RetryPolicy,
    multi_asset,
)
from dagster._core.definitions.data_version import CODE_VERSION_TAG, DATA_VERSION_TAG
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from relstate_dagster.assets.checks import declared_result, keys_result, verify_result
from relstate_dagster.assets.metadata import Metadata, column_lineage, epoch_metadata, table_metadata
from relstate_dagster.assets.observations import SourceObservations
from relstate_dagster.assets.run_config import ViewsConfig
from relstate_dagster.assets.specs import ProjectAssets, check_specs
from relstate_dagster.jobs.declare import Project
from relstate_dagster.jobs.declare.checks import MATCHES_FULL_RECOMPUTE, STREAM_KEY_UNIQUE
from relstate_dagster.state_lib.errors import DeclarationError

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import EpochRunner, ViewReport
    from relstate_dagster.server.runner import ServerRunner

VIEWS_OP = "materialized_views"
WAREHOUSE_KEY = "warehouse"
#: The tag of a run that is to compare views with their queries run in full, as well as to materialize them: ``true``, or
#: ``sample:1000`` compares 1,000 keys of each view.
VERIFY_TAG = "relstate/verify"


class WarehouseAccess(Protocol):
    """Interface of the warehouse resource for runs."""

    def runner(
        self,
        project: Project,
        tell: Callable[[str], None] = ...,
        *,
        views: Collection[str] = (),
        full_refresh: Collection[str] = (),
    ) -> "EpochRunner | ServerRunner":
        """Return the runner of epochs, with Spark or at the server, project registered.

        Spark is started for what the run is to do with ``views`` and ``full_refresh``.
        """

    def idle_reports(
        self,
        project: Project,
        names: Collection[str],
        *,
        full_refresh: Collection[str] = (),
        until_version: Mapping[str, int] = ...,
    ) -> "list[ViewReport] | None":
        """Reports of a run that finds nothing to do, without Spark; else None.

        Whether views can be rebuilt, and read up to versions, is checked before anything is written.
        """

    def view_path(self, name: str) -> str:
        """Return where a view is published."""


Event: TypeAlias = "MaterializeResult[object] | AssetCheckResult | Output[None]"
#: What a run does; :func:`run_views` is one.
Execute: TypeAlias = Callable[[AssetExecutionContext, WarehouseAccess, ProjectAssets], Iterator[Event]]


@dataclass(frozen=True, slots=True)
class _Reached:
    """Results of a run: versions of published tables, and unchanged assets."""

    versions: dict[str, int | None] = field(default_factory=dict)
    unchanged: set[AssetKey] = field(default_factory=set)


def run_views(context: AssetExecutionContext, warehouse: WarehouseAccess, assets: ProjectAssets) -> Iterator[Event]:
    """Bring the selected views up to date, then run the selected checks.

    Yields Dagster's events for each.

    A view whose version Dagster knows already gives no materialization. The run's config is a
    :class:`.assets.run_config.ViewsConfig`.
    """
    project, names = assets.project, assets.names_of(context.selected_asset_keys)
    is_asked, sample = _verification(context.run.tags)
    config = ViewsConfig.of(context)
    rebuilt, until = config.rebuilt(assets, names), config.until_version
    idle = warehouse.idle_reports(project, names, full_refresh=rebuilt, until_version=until) if names else None
    if idle is not None:
        # What was checked is as it was: checks alone can still be run.
        context.log.info("nothing that the views read has changed: Spark is not started, and nothing is checked again")
        yield from _run(context, assets, warehouse, idle, _Reached())
        blocking = _not_passed(context, assets)
        if blocking:
            context.log.info(f"made again, since they block and have not passed: {', '.join(map(_named, blocking))}")
            yield from _check(warehouse.runner(project, context.log.info), blocking, assets, _Reached(), sample)
        return
    # Those that are compared with their queries are read whole; and Spark may be there for other steps of the run as well.
    views = [] if is_asked or len(context.job_def.nodes) > 1 else names
    runner = warehouse.runner(project, context.log.info, views=views, full_refresh=rebuilt)
    reached = _Reached()
    if names:
        reports = runner.run(names, full_refresh=rebuilt, until_version=until, strict=config.strict, run_id=context.run.run_id)
        yield from _run(context, assets, warehouse, reports, reached)
    checks = _checks_of(context, names, is_asked=is_asked)
    if reached.unchanged and not is_asked:
        standing = _standing(context, assets, [key for key in checks if key.asset_key in reached.unchanged])
        checks = [key for key in checks if key not in standing]
    yield from _check(runner, checks, assets, reached, sample)


def _should_log(op: str, record: logging.LogRecord) -> bool:
    """Whether a line of the log is informative.

    Dagster takes checks that a run leaves out for forgotten ones.
    """
    return f"'{op}' did not yield or return expected outputs" not in record.getMessage()


def _verification(tags: Mapping[str, str]) -> tuple[bool, int | None]:
    """Read a run's tag: whether to verify views, and at how many keys.

    All keys without a number.

    Raises
    ------
    DeclarationError
        The tag says something else.
    """
    text = tags.get(VERIFY_TAG, "false")
    kind, _, count = text.partition(":")
    if kind == "sample" and count.isascii() and count.isdigit() and int(count):
        return True, int(count)
    if text not in ("true", "false"):
        raise DeclarationError(f"the run's tag {VERIFY_TAG} = {text!r} is unknown; it is true, false, or sample:1000.")
    return text == "true", None


def _not_passed(context: AssetExecutionContext, assets: ProjectAssets) -> list[AssetCheckKey]:
    """Selected blocking checks that have not passed since their view changed.

    No run continues over those.
    """
    blocking = [key for key, check in assets.declared_checks.items() if check.blocking]
    selected = [key for key in blocking if key in context.selected_asset_check_keys]
    passed = _passed_since_changed(context, selected)
    return [key for key in selected if key not in passed]


#: Kinds of checks whose result follows from the rows of the view.
_OF_ROWS_ALONE: Final = ("unique", "not_null", "accepted", "rows")


def _standing(context: AssetExecutionContext, assets: ProjectAssets, keys: Collection[AssetCheckKey]) -> set[AssetCheckKey]:
    """Checks of unchanged views that have passed since, and need no new run.

    None of those that look at a clock or at other tables is.
    """

    def stands(key: AssetCheckKey, evaluation: AssetCheckEvaluation) -> bool:
        declared, text = assets.declared_checks.get(key), evaluation.metadata.get("check")
        if declared is None:
            return key.name == STREAM_KEY_UNIQUE
        return declared.kind in _OF_ROWS_ALONE and text is not None and text.value == declared.described

    return {key for key, evaluation in _passed_since_changed(context, keys).items() if stands(key, evaluation)}


def _passed_since_changed(
    context: AssetExecutionContext, keys: Collection[AssetCheckKey]
) -> dict[AssetCheckKey, AssetCheckEvaluation]:
    """Last results of checks that passed after their view's last change."""
    if not keys:
        return {}
    records = context.instance.get_asset_records(list({key.asset_key for key in keys}))
    entries = [record.asset_entry for record in records]
    changed = {entry.asset_key: entry.last_materialization.timestamp for entry in entries if entry.last_materialization}
    # The newest record of each is that of this very run, which has planned to make them.
    known = context.instance.event_log_storage.get_asset_check_summary_records(list(keys))
    found = {}
    for key, summary in known.items():
        last = summary.last_completed_check_execution_record
        if last is None or last.event is None or last.status != AssetCheckExecutionRecordStatus.SUCCEEDED:
            continue
        evaluation = last.event.asset_check_evaluation
        if evaluation is not None and last.event.timestamp >= changed.get(key.asset_key, 0.0):
            found[key] = evaluation
    return found


def _named(key: AssetCheckKey) -> str:
    return f"{key.asset_key.to_user_string()}:{key.name}"


def _checks_of(context: AssetExecutionContext, names: Collection[str], *, is_asked: bool) -> list[AssetCheckKey]:
    """Checks of a run.

    Dagster selects all of an asset's with it, also those that cost a full recompute.
    """
    selected = list(context.selected_asset_check_keys)
    if not names or is_asked:
        return selected
    kept = [key for key in selected if key.name != MATCHES_FULL_RECOMPUTE]
    if len(kept) < len(selected):
        context.log.info(
            f"{MATCHES_FULL_RECOMPUTE} runs every query in full, so a run that materializes leaves it out. Run the check by "
            f"itself or its job, or give the run the tag {VERIFY_TAG} = true (or sample:1000, for some keys)"
        )
    return kept


def build_views_asset(
    assets: ProjectAssets,
    *,
    name: str = VIEWS_OP,
    resource_key: str = WAREHOUSE_KEY,
    execute: Execute = run_views,
    op_tags: Mapping[str, Any] | None = None,
    pool: str | None = None,
    retry_policy: RetryPolicy | None = None,
) -> AssetsDefinition:
    """Return the multi-asset over every view of a project.

    One run is one epoch over the selected views. Each view is reported once it is published. Checks run after the epoch is
    complete, in the same process, and may be run alone. Where nothing has changed, neither is started.

    Parameters
    ----------
    name
        Of its op.
    resource_key
        Of the warehouse.
    execute
        What a run does.
    op_tags, pool, retry_policy
        As in Dagster, of the one step that all views are.
    """

    @multi_asset(
        name=name,
        specs=list(assets.views.values()),
        check_specs=check_specs(assets),
        can_subset=True,
        required_resource_keys={resource_key},
        op_tags=op_tags,
        pool=pool,
        retry_policy=retry_policy,
    )
    def materialized_views(context: AssetExecutionContext, config: ViewsConfig) -> Iterator[Event]:
        del config  # what runs the views asks the context for it
        warehouse: WarehouseAccess = getattr(context.resources, resource_key)
        context.log.addFilter(partial(_should_log, str(context.op_execution_context.node_handle)))
        yield from execute(context, warehouse, assets)

    return materialized_views


def _run(
    context: AssetExecutionContext,
    assets: ProjectAssets,
    warehouse: WarehouseAccess,
    reports: Iterable["ViewReport"],
    reached: _Reached,
) -> Iterator[MaterializeResult[object] | Output[None]]:
    """Turn the reports of a run into results.

    A run first completes the epoch of one that died, so it may report a view twice, or one that was not selected. Dagster
    takes one result for each selected asset, the others are logged as events of their own. Views that are left behind have
    none; their error is raised once all others are done. ``reached`` gets what checks go by.
    """
    pending = set(context.selected_asset_keys)
    last_versions = _last_materialized(context, pending)
    observations = SourceObservations(context, assets)
    for report in reports:
        if report.problem is not None:
            # No result: the run fails once all others are done, and this asset is not materialized by it.
            context.log.error("%s was left behind at epoch %d: %s", report.view, report.epoch, report.problem)
            continue
        context.log.info(
            "%s: epoch %d, +%d −%d rows, %.2f s",
            report.view,
            report.epoch,
            report.rows_inserted,
            report.rows_deleted,
            sum(report.seconds.values()),
        )
        spec = assets.views.get(report.view)
        if spec is None:
            continue  # of a project that shares the warehouse
        reached.versions[report.view] = report.view_version
        observations.log(report)
        is_due = spec.key in pending
        pending.discard(spec.key)
        is_known = last_versions.get(spec.key) == (str(report.view_version), spec.code_version)
        # A warehouse that was made again counts its versions from the start.
        if is_due and is_known and not report.rows_inserted and not report.rows_deleted:
            reached.unchanged.add(spec.key)
            yield _nothing_new(context, spec.key)
            continue
        metadata = epoch_metadata(report, _of_table(assets, warehouse, report))
        if is_due:
            yield MaterializeResult(asset_key=spec.key, metadata=metadata, data_version=DataVersion(str(report.view_version)))
        else:
            context.log_event(AssetMaterialization(asset_key=spec.key, metadata=metadata))


def _last_materialized(
    context: AssetExecutionContext, keys: Collection[AssetKey]
) -> dict[AssetKey, tuple[str | None, str | None]]:
    """Data and code versions of the last materializations, as Dagster knows them."""
    found: dict[AssetKey, tuple[str | None, str | None]] = {}
    for record in context.instance.get_asset_records(list(keys)):
        last = record.asset_entry.last_materialization
        tags = (last.asset_materialization.tags if last is not None and last.asset_materialization else None) or {}
        found[record.asset_entry.asset_key] = (tags.get(DATA_VERSION_TAG), tags.get(CODE_VERSION_TAG))
    return found


def _nothing_new(context: AssetExecutionContext, key: AssetKey) -> Output[None]:
    """An output without a materialization event.

    Without any output, an asset further down in the same run would be skipped, also one that reads another view, which has
    changed, and nothing would ask for it again.
    """
    output_name = context.assets_def.get_output_name_for_asset_key(key)
    return Output(None, output_name=output_name, metadata={SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True})


def _of_table(assets: ProjectAssets, warehouse: WarehouseAccess, report: "ViewReport") -> Metadata:
    found = table_metadata(warehouse.view_path(report.view), report.view_version)
    lineage = column_lineage(assets.project, report.view, assets.keys)
    return found if lineage is None else {**found, "dagster/column_lineage": lineage}


def _check(
    runner: "EpochRunner | ServerRunner",
    keys: Iterable[AssetCheckKey],
    assets: ProjectAssets,
    reached: _Reached,
    sample: int | None,
) -> Iterator[AssetCheckResult]:
    names = {spec.key: name for name, spec in assets.views.items()}
    ordered = sorted(keys, key=lambda check: (check.asset_key.to_user_string(), check.name))
    unique = {names[key.asset_key]: key for key in ordered if key.name == STREAM_KEY_UNIQUE}
    if unique:
        # What the run has published, whatever another one has published since.
        for keys_found in runner.stream_key_unique({name: reached.versions.get(name) for name in unique}):
            yield keys_result(unique[keys_found.view], keys_found)
    declared: dict[AssetKey, dict[str, AssetCheckKey]] = {}
    for key in ordered:
        if key in assets.declared_checks:
            declared.setdefault(key.asset_key, {})[key.name] = key
    for asset_key, of_view in declared.items():
        for found in runner.check([names[asset_key]], list(of_view)):
            yield declared_result(of_view[found.check.name], found)
    for key in ordered:
        if key.name == MATCHES_FULL_RECOMPUTE:
            for report in runner.verify([names[key.asset_key]], sample=sample):
                yield verify_result(key, report)
