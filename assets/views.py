"""All views of a project as one multi-asset, so that a run has one JVM, whatever Dagster's executor is."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from dagster import (
    AssetCheckKey,
    AssetCheckResult,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetsDefinition,
    DataVersion,
    MaterializeResult,
    multi_asset,
)

from relstate_dagster.assets.metadata import Metadata, column_lineage, epoch_metadata, published_schema
from relstate_dagster.assets.specs import MATCHES_FULL_RECOMPUTE, STREAM_KEY_UNIQUE, check_specs, view_specs
from relstate_dagster.jobs.declare import Project

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import EpochRunner, ViewReport


class WarehouseAccess(Protocol):
    """What a run needs of its resource ``warehouse``."""

    def runner(self, project: Project, on_wait: Callable[[str], None] | None = None) -> "EpochRunner":
        """Start Spark, make the project known to the warehouse, and return its epoch runner."""

    def idle_reports(self, project: Project, names: Collection[str]) -> "list[ViewReport] | None":
        """Return the reports of a run that finds nothing to do, without Spark; None where there may be something."""

    def view_path(self, name: str) -> str:
        """Return where a view is published."""


Event = MaterializeResult[object] | AssetCheckResult


def build_views_asset(project: Project) -> AssetsDefinition:
    """Return the multi-asset over every view of a project.

    One run is one epoch over the selected views. Each view is reported as it is published; checks run after the
    epoch is complete, in the same process, and may be run alone. Where nothing has changed, neither is started.
    """

    @multi_asset(
        name="materialized_views",
        specs=view_specs(project),
        check_specs=check_specs(project),
        can_subset=True,
        required_resource_keys={"warehouse"},
    )
    def materialized_views(context: AssetExecutionContext) -> Iterator[Event]:
        warehouse: WarehouseAccess = context.resources.warehouse
        names = [view.name for view in project.views if AssetKey(view.name) in context.selected_asset_keys]
        idle = warehouse.idle_reports(project, names) if names else None
        if idle is not None:
            # What was checked is as it was: checks alone can still be run.
            context.log.info("nothing that the views read has changed: Spark is not started, and nothing is checked again")
            yield from _run(context, project, warehouse, idle)
            return
        runner = warehouse.runner(project, context.log.info)
        if names:
            yield from _run(context, project, warehouse, runner.run(names, run_id=context.run.run_id))
        yield from _check(runner, context.selected_asset_check_keys)

    return materialized_views


def _run(
    context: AssetExecutionContext, project: Project, warehouse: WarehouseAccess, reports: Iterable["ViewReport"]
) -> Iterator[MaterializeResult[object]]:
    """Turn the reports of a run into results.

    A run first completes the epoch of one that died, and may so report a view twice, or one that was not selected;
    Dagster takes one result for each selected asset, the others are logged as events of their own. Views that are left
    behind have none; their error is raised once all others are done.
    """
    pending = set(context.selected_asset_keys)
    for report in reports:
        key = AssetKey(report.view)
        if report.problem is not None:
            # No result: the run fails once all others are done, and this asset is not materialized by it.
            context.log.error("%s was left behind at epoch %d: %s", report.view, report.epoch, report.problem)
            continue
        metadata = epoch_metadata(report) | _columns(project, warehouse, report.view)
        context.log.info(
            "%s: epoch %d, +%d −%d rows, %.2f s",
            report.view,
            report.epoch,
            report.rows_inserted,
            report.rows_deleted,
            sum(report.seconds.values()),
        )
        if key in pending:
            pending.remove(key)
            yield MaterializeResult(asset_key=key, metadata=metadata, data_version=DataVersion(str(report.view_version)))
        else:
            context.log_event(AssetMaterialization(asset_key=key, metadata=metadata))


def _columns(project: Project, warehouse: WarehouseAccess, name: str) -> Metadata:
    found: Metadata = {}
    schema = published_schema(warehouse.view_path(name))
    if schema is not None:
        found["dagster/column_schema"] = schema
    lineage = column_lineage(project, name)
    if lineage is not None:
        found["dagster/column_lineage"] = lineage
    return found


def _check(runner: "EpochRunner", keys: Iterable[AssetCheckKey]) -> Iterator[AssetCheckResult]:
    by_name: dict[str, list[AssetKey]] = {MATCHES_FULL_RECOMPUTE: [], STREAM_KEY_UNIQUE: []}
    for check in sorted(keys, key=lambda check: check.asset_key.to_user_string()):
        by_name[check.name].append(check.asset_key)
    for key in by_name[STREAM_KEY_UNIQUE]:
        duplicated_keys = runner.stream_key_unique(key.to_user_string())
        yield AssetCheckResult(
            asset_key=key,
            check_name=STREAM_KEY_UNIQUE,
            passed=duplicated_keys == 0,
            metadata={"duplicated keys": duplicated_keys},
        )
    for key in by_name[MATCHES_FULL_RECOMPUTE]:
        for report in runner.verify([key.to_user_string()]):
            yield AssetCheckResult(
                asset_key=key,
                check_name=MATCHES_FULL_RECOMPUTE,
                passed=report.equal,
                metadata={
                    "epoch": report.epoch,
                    "missing rows": report.missing_rows,
                    "unexpected rows": report.unexpected_rows,
                    "seconds": float(report.seconds),
                    **({"problem": report.problem} if report.problem is not None else {}),
                },
            )
