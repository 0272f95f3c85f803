"""Incrementally maintained materialized views for Spark, Delta Lake and Dagster.

What a Dagster project uses is here; it is imported when it is first asked for, since parts of this package do without Dagster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from relstate_dagster.assets.automation import when_views_change
    from relstate_dagster.assets.translator import RelstateTranslator
    from relstate_dagster.code_location import build_definitions
    from relstate_dagster.component import MaterializedViewsComponent
    from relstate_dagster.jobs.declare import materialized_view
    from relstate_dagster.jobs.script.notebook import Notebook
    from relstate_dagster.resources import SparkResource, WarehouseResource
    from relstate_dagster.view_io import ViewIOManager

__all__ = [
    "MaterializedViewsComponent",
    "Notebook",
    "RelstateTranslator",
    "SparkResource",
    "ViewIOManager",
    "WarehouseResource",
    "build_definitions",
    "materialized_view",
    "when_views_change",
]

_MODULES: Final = {
    "MaterializedViewsComponent": "relstate_dagster.component",
    "Notebook": "relstate_dagster.jobs.script.notebook",
    "RelstateTranslator": "relstate_dagster.assets.translator",
    "SparkResource": "relstate_dagster.resources",
    "ViewIOManager": "relstate_dagster.view_io",
    "WarehouseResource": "relstate_dagster.resources",
    "build_definitions": "relstate_dagster.code_location",
    "materialized_view": "relstate_dagster.jobs.declare",
    "when_views_change": "relstate_dagster.assets.automation",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
