"""A project as Dagster definitions for any code location.

Building them reads SQL files and no table, and starts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dagster import Definitions, ExecutorDefinition, RetryPolicy

from relstate_dagster.assets.specs import AssetOf, project_assets
from relstate_dagster.assets.translator import RelstateTranslator
from relstate_dagster.assets.views import VIEWS_OP, WAREHOUSE_KEY, Execute, build_views_asset, run_views
from relstate_dagster.jobs.declare import Project, load_project
from relstate_dagster.maintenance import maintenance_job
from relstate_dagster.refresh_jobs import REFRESH_JOB, VERIFY_JOB, refresh_job, verify_job
from relstate_dagster.resources import WarehouseResource
from relstate_dagster.schedules import QUARTER_HOURLY, WEEKLY, quarter_hourly, weekly
from relstate_dagster.sensors import SENSOR, delta_versions_sensor
from relstate_dagster.state_lib.errors import DeclarationError

_NAME = re.compile(r"[A-Za-z0-9_]+", re.ASCII)


def build_definitions(
    project: Project | str | Path,
    *,
    warehouse: WarehouseResource | str | Path | None = None,
    resource_key: str = WAREHOUSE_KEY,
    name: str | None = None,
    key_prefix: str | Sequence[str] | None = None,
    translator: RelstateTranslator | None = None,
    sources: Mapping[str, AssetOf] | None = None,
    define_sources: bool = True,
    executor: ExecutorDefinition | None = None,
    execute: Execute = run_views,
    op_tags: Mapping[str, Any] | None = None,
    pool: str | None = None,
    retry_policy: RetryPolicy | None = None,
) -> Definitions:
    """Dagster definitions of a project: assets, checks, jobs, sensor, schedules, resource.

    Several projects, and whatever else a code location has, go together with ``Definitions.merge``. Projects in different
    warehouses need a ``resource_key`` each; those in one warehouse share one resource object.

    Parameters
    ----------
    project
        A folder of ``.sql`` files or of a dbt project, or what :func:`load_project` made of one.
    warehouse
        A folder, the address of an object store, or a resource. Without one the code location has a
        :class:`WarehouseResource` under ``resource_key``.
    resource_key
        What the warehouse is called among the resources.
    name
        Put before the names of op, jobs, sensor and schedules, with ``_``; the key prefix by default.
    key_prefix
        Put before the asset keys of views, and of sources that are defined here.
    translator
        What Dagster shows of views and sources.
    sources
        Assets of the code location that write a source's Delta table, by the source's name.
    define_sources
        Whether sources that ``sources`` does not name become assets of their own.
    executor
        Of this project's jobs and, set in the definitions, of the code location. Without one the jobs run in the process of
        their run, since all views are one step, and the code location keeps its own executor.
    execute
        What a run does; what it wants to do besides, it does around :func:`.assets.views.run_views`.
    op_tags, pool, retry_policy
        As in Dagster, of the one step that all views are.

    Raises
    ------
    DeclarationError
        The project, or what it tells Dagster, is declared wrongly; says in which file.
    """
    declared = project if isinstance(project, Project) else load_project(project, warehouse=_root_of(warehouse))
    assets = project_assets(declared, translator, key_prefix=key_prefix, sources=sources, define_sources=define_sources)
    before = _before(name, key_prefix)
    refresh = refresh_job(assets, before + REFRESH_JOB, executor)
    maintenance = maintenance_job(declared, before, resource_key, executor)
    views = build_views_asset(
        assets,
        name=before + VIEWS_OP,
        resource_key=resource_key,
        execute=execute,
        op_tags=op_tags,
        pool=pool,
        retry_policy=retry_policy,
    )
    if isinstance(warehouse, (str, Path)):
        warehouse = WarehouseResource(path=str(warehouse))
    return Definitions(
        assets=[views, *assets.sources],
        jobs=[refresh, verify_job(assets, before + VERIFY_JOB, executor), maintenance],
        sensors=[delta_versions_sensor(declared, refresh, name=before + SENSOR, resource_key=resource_key)],
        schedules=[quarter_hourly(refresh, before + QUARTER_HOURLY), weekly(maintenance, before + WEEKLY)],
        resources={} if warehouse is None else {resource_key: warehouse},
        executor=executor,
    )


def _root_of(warehouse: WarehouseResource | str | Path | None) -> str | None:
    """Folder or address of a warehouse; None where only a run knows it."""
    path = warehouse.path if isinstance(warehouse, WarehouseResource) else warehouse
    return str(path) if isinstance(path, (str, Path)) else None


def _before(name: str | None, key_prefix: str | Sequence[str] | None) -> str:
    """Return what the names of a project begin with."""
    if name is None:
        parts = [key_prefix] if isinstance(key_prefix, str) else list(key_prefix or ())
        name = re.sub(r"[^A-Za-z0-9_]", "_", "_".join(parts))
    elif not _NAME.fullmatch(name):
        raise DeclarationError(f"name = {name!r}: Dagster takes ASCII letters, digits and '_' only.")
    return f"{name}_" if name else ""
