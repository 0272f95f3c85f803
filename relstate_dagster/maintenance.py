"""The job that keeps a warehouse small: compaction, then vacuum."""
# Dagster reads the annotations of an op as types: they are not to become strings.

from typing import Final

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
from relstate_dagster.resources import WarehouseResource
from relstate_dagster.state_lib.constants import RETAINED_HOURS


class MaintenanceConfig(Config):
    """What a vacuum leaves."""

    epochs: int | None = Field(default=None, ge=1, description="epochs of each view that stay readable; by default the last 32")
    hours: int = Field(default=RETAINED_HOURS, ge=0, description="what was replaced no longer ago than this stays as well")


MAINTENANCE_JOB: Final = "maintain_state"
MAINTENANCE_OP: Final = "compact_and_vacuum"


def maintenance_job(
    project: Project,
    before: str = "",
    resource_key: str = WAREHOUSE_KEY,
    executor: ExecutorDefinition | None = None,
) -> JobDefinition:
    """Return the job that compacts the state of every view, then deletes the files that no retained epoch needs.

    ``before`` begins its name and that of its op.
    """

    @op(
        name=before + MAINTENANCE_OP,
        description="Rewrites state tables sorted by key and without dead rows, then deletes old files.",
        required_resource_keys={resource_key},
    )
    def compact_and_vacuum(context: OpExecutionContext, config: MaintenanceConfig) -> Output[None]:
        warehouse: WarehouseResource = getattr(context.resources, resource_key)
        runner = warehouse.runner(project, context.log.info)
        for done in runner.compact():
            context.log.info(f"{done.view}: {done.files_before} files of state, now {done.files_after}")
        rows = [
            TableRecord(
                {
                    "of": done.name,
                    "files deleted": done.files_deleted,
                    "bytes deleted": done.bytes_deleted,
                    "files left": done.files_left,
                    "bytes left": done.bytes_left,
                }
            )
            for done in runner.vacuum(epochs=config.epochs, hours=config.hours)
        ]
        schema = TableSchema([TableColumn("of"), *(TableColumn(name, "int") for name in list(rows[0].data)[1:])])
        return Output(None, metadata={"vacuum": TableMetadataValue(rows, schema)})

    @job(
        name=before + MAINTENANCE_JOB,
        description="Compacts state, then deletes the files that no retained epoch needs.",
        executor_def=executor or in_process_executor,
    )
    def maintain_state() -> None:
        compact_and_vacuum()

    return maintain_state
