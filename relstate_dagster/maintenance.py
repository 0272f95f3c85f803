"""The job that keeps a warehouse small: compaction, then vacuum."""
# Dagster reads the annotations of an op as types: they are not to become strings.

from typing import TYPE_CHECKING, Any, Final

from dagster import (
    Config,
    ExecutorDefinition,
    JobDefinition,
    OpExecutionContext,
    Output,
    TableColumn,
    TableMetadataValue,
    TableRecord,
    TableSchema,
    in_process_executor,
    job,
    op,
)
from pydantic import Field

from relstate_dagster.assets.views import WAREHOUSE_KEY
from relstate_dagster.jobs.declare import Project
from relstate_dagster.jobs.declare.names import as_declared
from relstate_dagster.resources import WarehouseResource
from relstate_dagster.state_lib.constants import RETAINED_HOURS
from relstate_dagster.state_lib.errors import DeclarationError

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import CompactReport, VacuumReport


class MaintenanceConfig(Config):
    """Views and retention of a maintenance run."""

    views: list[str] = Field(default=[], description="names of views; without any, every view of the warehouse")
    compact: bool = Field(default=True, description="rewrite the state of the views")
    vacuum: bool = Field(default=True, description="delete the files of the views that no retained epoch needs")
    epochs: int | None = Field(default=None, ge=1, description="epochs of each view that stay readable; by default the last 32")
    hours: int = Field(
        default=RETAINED_HOURS, ge=0, description="also keep files that were replaced less than this many hours ago"
    )


MAINTENANCE_JOB: Final = "maintain_state"
MAINTENANCE_OP: Final = "compact_and_vacuum"


def maintenance_job(
    project: Project,
    before: str = "",
    resource_key: str = WAREHOUSE_KEY,
    executor: ExecutorDefinition | None = None,
) -> JobDefinition:
    """Job that compacts state, then deletes files that no retained epoch needs.

    ``before`` begins its name and that of its op.
    """

    @op(
        name=before + MAINTENANCE_OP,
        description="Rewrites state tables sorted by key and without dead rows, then deletes old files.",
        required_resource_keys={resource_key},
    )
    def compact_and_vacuum(context: OpExecutionContext, config: MaintenanceConfig) -> Output[None]:
        warehouse: WarehouseResource = getattr(context.resources, resource_key)
        known = warehouse.opened().read().views
        named = dict.fromkeys(as_declared(name, known) for name in config.views)
        unknown = [name for name in named if name not in known]
        if unknown:
            raise DeclarationError(
                f"views: the warehouse has no view {', '.join(unknown)}; there are {', '.join(sorted(known)) or 'none'}."
            )
        views = list(named) or None
        runner = warehouse.runner(project, context.log.info)
        metadata = {}
        if config.compact:
            compacted = []
            for done in runner.compact(views):
                context.log.info(f"{done.view}: {done.files_before} files of state, now {done.files_after}")
                compacted.append(_compacted(done))
            metadata["compaction"] = _table(compacted)
        if config.vacuum:
            metadata["vacuum"] = _table([_vacuumed(d) for d in runner.vacuum(views, epochs=config.epochs, hours=config.hours)])
        return Output(None, metadata=metadata)

    @job(
        name=before + MAINTENANCE_JOB,
        description="Compacts state, then deletes the files that no retained epoch needs.",
        executor_def=executor or in_process_executor,
    )
    def maintain_state() -> None:
        compact_and_vacuum()

    return maintain_state


def _compacted(done: "CompactReport") -> dict[str, Any]:
    return {
        "of": done.view,
        "files before": done.files_before,
        "files after": done.files_after,
        "bytes before": done.bytes_before,
        "bytes after": done.bytes_after,
    }


def _vacuumed(done: "VacuumReport") -> dict[str, Any]:
    return {
        "of": done.name,
        "files deleted": done.files_deleted,
        "bytes deleted": done.bytes_deleted,
        "files left": done.files_left,
        "bytes left": done.bytes_left,
    }


def _table(rows: list[dict[str, Any]]) -> TableMetadataValue:
    columns = [TableColumn(name, "string" if name == "of" else "int") for name in (rows[0] if rows else {"of": ""})]
    return TableMetadataValue([TableRecord(row) for row in rows], TableSchema(columns))
