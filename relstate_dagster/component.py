"""A project as a component of ``dg``: what :func:`.code_location.build_definitions` gives, from a ``defs.yaml``."""
# Dagster reads the annotations of the fields as types: they are not to become strings.

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from os.path import relpath
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetSpec,
    Component,
    ComponentLoadContext,
    Definitions,
    ResolutionContext,
    Resolvable,
    Resolver,
    Scaffolder,
    ScaffoldRequest,
    scaffold_with,
)
from dagster.components.component_scaffolding import scaffold_component
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, Field

from relstate_dagster.assets.specs import ProjectAssets
from relstate_dagster.assets.translator import RelstateTranslator
from relstate_dagster.assets.views import WAREHOUSE_KEY, Event, WarehouseAccess, run_views
from relstate_dagster.code_location import build_definitions
from relstate_dagster.jobs.declare import Project, SourceDeclaration, ViewDeclaration
from relstate_dagster.resources import WarehouseResource
from relstate_dagster.starter import STARTER
from relstate_dagster.state_lib.lake.address import Address

Translation: TypeAlias = TranslationFn[ViewDeclaration]


class ViewsScaffoldParams(BaseModel):
    """Parameters of ``dg scaffold defs``."""

    project_path: str | None = Field(default=None, description="a folder of .sql files; without one, one to start from is made")
    warehouse: str | None = Field(default=None, description="a folder, or the address of an object store")


class MaterializedViewsScaffolder(Scaffolder[ViewsScaffoldParams]):
    """Writes a ``defs.yaml``, and a project to start from where none is named."""

    @classmethod
    def get_scaffold_params(cls) -> type[ViewsScaffoldParams]:
        """Return the options."""
        return ViewsScaffoldParams

    def scaffold(self, request: ScaffoldRequest[ViewsScaffoldParams]) -> None:
        """Write the files.

        Two components coexist: each has keys, names and a warehouse of its own.
        """
        name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in request.target_path.name)
        if request.params.project_path is None:
            project = "."
            for path, text in STARTER.items():
                (request.target_path / path).parent.mkdir(parents=True, exist_ok=True)
                (request.target_path / path).write_text(text, encoding="utf-8")
        else:
            project = _from_root(request.params.project_path, request)
        warehouse = f"{{{{ context.project_root }}}}/{name}_warehouse"
        if request.params.warehouse is not None:
            is_local = Address.parse(request.params.warehouse).is_local
            warehouse = _from_root(request.params.warehouse, request) if is_local else request.params.warehouse
        attributes = {"project": project, "warehouse": warehouse, "resource_key": f"{name}_warehouse", "key_prefix": name}
        scaffold_component(request, attributes)


def _from_root(path: str, request: ScaffoldRequest[ViewsScaffoldParams]) -> str:
    """A path relative to the root of the ``dg`` project, wherever checked out."""
    if request.project_root is None:
        return str(Path(path).absolute())
    return f"{{{{ context.project_root }}}}/{relpath(path, request.project_root)}"


def _resolved_path(context: ResolutionContext, path: str) -> str:
    """A path with its templates filled in.

    A relative one is one beside the ``defs.yaml``.
    """
    text = str(context.resolve_value(path, as_type=str))
    if "://" in text:
        return text
    return str(context.resolve_source_relative_path(text))


def _resolved_keys(context: ResolutionContext, sources: Mapping[str, str]) -> dict[str, AssetKey]:
    return {name: AssetKey.from_user_string(context.resolve_value(key, as_type=str)) for name, key in sources.items()}


@scaffold_with(MaterializedViewsScaffolder)
@dataclass
class MaterializedViewsComponent(Component, Resolvable):
    """The materialized views of a project: assets, checks, jobs, a sensor, schedules and the warehouse.

    Override ``get_asset_spec`` to change what Dagster shows of a view, and ``execute`` to do something around a run.
    """

    project: Annotated[
        str,
        Resolver(
            _resolved_path,
            model_field_type=str,
            description="The folder of the .sql files, or of a dbt project; a relative path starts at this file.",
            examples=["{{ context.project_root }}/views"],
        ),
    ]
    warehouse: Annotated[
        str | None,
        Resolver(
            lambda context, path: None if path is None else _resolved_path(context, path),
            model_field_type=str | None,
            description="A folder or the address of an object store; without one, resource_key is a resource of the project.",
            examples=["{{ context.project_root }}/warehouse", "s3://bucket/warehouse"],
        ),
    ] = None
    functions: Annotated[
        str | None,
        Resolver.default(
            description="The callable that registers what views call besides Spark's functions.",
            examples=["shop.functions:register"],
        ),
    ] = None
    resource_key: Annotated[str, Resolver.default(description="The warehouse's key among the resources.")] = WAREHOUSE_KEY
    name: Annotated[
        str | None,
        Resolver.default(
            description="Begins the names of op, jobs, sensor and schedules; the key prefix by default.", examples=["shop"]
        ),
    ] = None
    key_prefix: Annotated[
        str | list[str] | None,
        Resolver.default(
            description="Put before the asset keys of views, and of sources that are defined here.", examples=["shop"]
        ),
    ] = None
    sources: Annotated[
        Mapping[str, AssetKey] | None,
        Resolver(
            lambda context, sources: None if sources is None else _resolved_keys(context, sources),
            model_field_type=Mapping[str, str] | None,
            description="The keys of assets that write a source's Delta table, by the source's name.",
            examples=[{"orders": "raw/orders"}],
        ),
    ] = None
    define_sources: Annotated[
        bool, Resolver.default(description="Whether sources that no asset stands for become assets of their own.")
    ] = True
    op_tags: Annotated[dict[str, Any] | None, Resolver.default(description="Tags of the one step that all views are.")] = None
    pool: Annotated[str | None, Resolver.default(description="The concurrency pool of that step.")] = None
    translation: Annotated[
        Translation | None,
        TranslationFnResolver[ViewDeclaration](template_vars_for_translation_fn=lambda view: {"view": view}),
    ] = None

    @cached_property
    def translator(self) -> RelstateTranslator:
        """Translator of views and sources, before :meth:`get_asset_spec`."""
        return RelstateTranslator()

    def get_asset_spec(self, view: ViewDeclaration, project: Project) -> AssetSpec:
        """Spec of a view, without dependencies and key prefix.

        ``translation`` has the last word.
        """
        spec = self.translator.get_asset_spec(view, project)
        return spec if self.translation is None else self.translation(spec, view)

    def execute(self, context: AssetExecutionContext, warehouse: WarehouseAccess, assets: ProjectAssets) -> Iterator[Event]:
        """Bring the selected views up to date and run checks, yielding Dagster's events."""
        yield from run_views(context, warehouse, assets)

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        """Return the definitions; reads SQL files and starts nothing."""
        resource = None
        if self.warehouse is not None:
            resource = WarehouseResource(path=self.warehouse, functions=self.functions or "")
        return build_definitions(
            self.project,
            warehouse=resource,
            resource_key=self.resource_key,
            name=self.name,
            key_prefix=self.key_prefix,
            translator=_ComponentTranslator(self),
            sources=self.sources,
            define_sources=self.define_sources,
            execute=self.execute,
            op_tags=self.op_tags,
            pool=self.pool,
        )


class _ComponentTranslator(RelstateTranslator):
    """A translator that calls the component's overrides."""

    def __init__(self, component: MaterializedViewsComponent) -> None:
        self._component = component

    def get_asset_spec(self, view: ViewDeclaration, project: Project) -> AssetSpec:
        return self._component.get_asset_spec(view, project)

    def get_source_spec(self, source: SourceDeclaration, project: Project) -> AssetSpec | None:
        return self._component.translator.get_source_spec(source, project)

    def get_source_key(self, source: SourceDeclaration) -> AssetKey:
        return self._component.translator.get_source_key(source)
