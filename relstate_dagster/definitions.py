"""The code location of `dagster dev -m relstate_dagster.definitions`: the project and warehouse that the environment names."""

from __future__ import annotations

from dagster import in_process_executor

from relstate_dagster.code_location import build_definitions
from relstate_dagster.resources import WarehouseResource
from relstate_dagster.settings import Location

_location = Location.from_environment()

defs = build_definitions(
    _location.project,
    warehouse=WarehouseResource(path=_location.warehouse, functions=_location.functions or "", server=_location.server),
    # All views are one step: a process of its own for that step would only start Dagster twice.
    executor=in_process_executor,
)
