"""Code location of `dagster dev -m relstate_dagster.definitions`, from environment variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagster import in_process_executor

from relstate_dagster.code_location import build_definitions
from relstate_dagster.demo_project import check_is_home_of
from relstate_dagster.jobs.declare import Project
from relstate_dagster.resources import WarehouseResource
from relstate_dagster.settings import Location

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import EpochRunner
    from relstate_dagster.server.runner import ServerRunner

_location = Location.from_environment()


class _HomeOfTheDemo(WarehouseResource):
    """The warehouse of the demo, which has no other views."""

    def runner(self, project: Project, *args: Any, **others: Any) -> EpochRunner | ServerRunner:
        check_is_home_of(project, self.opened())
        return super().runner(project, *args, **others)


_resource = WarehouseResource if _location.is_named else _HomeOfTheDemo

defs = build_definitions(
    _location.project,
    warehouse=_resource(path=_location.warehouse, functions=_location.functions or "", server=_location.server),
    # All views are one step: a process of its own for that step would only start Dagster twice.
    executor=in_process_executor,
)
