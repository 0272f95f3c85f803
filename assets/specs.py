"""Asset specs and keys of a project's views and sources.

Nothing here reads a table or starts a JVM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from dagster import AssetCheckKey, AssetCheckSpec, AssetKey, AssetsDefinition, AssetSpec, SourceAsset
from dagster._core.definitions.utils import DISALLOWED_NAMES
from dagster_shared.check import CheckError
from dagster_shared.error import DagsterError

from relstate_dagster.assets.metadata import column_lineage
from relstate_dagster.assets.properties import where
from relstate_dagster.assets.translator import RelstateTranslator
from relstate_dagster.jobs.declare import Project, SourceDeclaration, ViewDeclaration
from relstate_dagster.jobs.declare.checks import MATCHES_FULL_RECOMPUTE, STREAM_KEY_UNIQUE, Check, checks_of
from relstate_dagster.state_lib.errors import DeclarationError, first_line

#: Metadata: the name of the view in its warehouse, whatever its key is.
VIEW: Final = "relstate/view"

#: What names an asset of the code location: its key, or its definition.
AssetOf: TypeAlias = AssetKey | str | Sequence[str] | AssetsDefinition | AssetSpec | SourceAsset
_KEY_PART: Final = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


@dataclass(frozen=True)
class ProjectAssets:
    """A project as Dagster has it.

    Attributes
    ----------
    views
        The spec of each view by its name, upstream first.
    sources
        The specs of the sources that no asset of the code location stands for.
    keys
        The asset key of each view and source, by its name.
    """

    project: Project
    views: Mapping[str, AssetSpec]
    sources: tuple[AssetSpec, ...]
    keys: Mapping[str, AssetKey]

    def names_of(self, keys: Iterable[AssetKey]) -> list[str]:
        """Return the views that have some keys, upstream first."""
        wanted = set(keys)
        return [name for name, spec in self.views.items() if spec.key in wanted]

    def view_keys(self) -> list[AssetKey]:
        """Return the keys of all views."""
        return [spec.key for spec in self.views.values()]

    def check_keys(self, name: str) -> list[AssetCheckKey]:
        """Return the keys of one check of every view."""
        return [AssetCheckKey(key, name) for key in self.view_keys()]

    @cached_property
    def declared_checks(self) -> Mapping[AssetCheckKey, Check]:
        """Return the checks that views declare beside their queries."""
        return {
            AssetCheckKey(self.views[view.name].key, check.name): check
            for view in self.project.views
            for check in checks_of(view.properties, where(view))
        }


def project_assets(
    project: Project,
    translator: RelstateTranslator | None = None,
    *,
    key_prefix: str | Sequence[str] | None = None,
    sources: Mapping[str, AssetOf] | None = None,
    define_sources: bool = True,
) -> ProjectAssets:
    """Return the specs and keys of a project.

    Parameters
    ----------
    translator
        Makes the specs.
    key_prefix
        Put before the keys of views, and of sources that are defined here.
    sources
        Assets of the code location that write a source's Delta table, by the source's name.
    define_sources
        Whether sources that ``sources`` does not name become assets; otherwise they are known by their keys alone.

    Raises
    ------
    DeclarationError
        Dagster refuses an attribute of a view or source, two have one key, or ``sources`` names something else.
    """
    translator = translator or RelstateTranslator()
    prefix = [key_prefix] if isinstance(key_prefix, str) else list(key_prefix or ())
    given = _given_keys(project, sources or {})
    keys: dict[str, AssetKey] = {}
    defined: list[AssetSpec] = []
    for source in _all_sources(project):
        if source.name in given:
            keys[source.name] = given[source.name]
            continue
        at = f"{source.path or 'source'}:{source.line}: {source.name}"
        with _accepted(at):
            spec = translator.get_source_spec(source, project) if define_sources else None
            key = translator.get_source_key(source) if spec is None else spec.key.with_prefix(prefix)
        keys[source.name] = key
        if spec is not None:
            defined.append(spec.replace_attributes(key=key))
    bare: dict[str, AssetSpec] = {}
    for view in project.views:
        with _accepted(where(view)):
            bare[view.name] = translator.get_asset_spec(view, project)
        keys[view.name] = bare[view.name].key.with_prefix(prefix)
    _check_keys(project, keys)
    views: dict[str, AssetSpec] = {}
    for view in project.views:
        with _accepted(where(view)):
            views[view.name] = _wired(project, view, bare[view.name], keys)
    assets = ProjectAssets(project, views, tuple(defined), keys)
    _check_check_names(assets)
    return assets


def check_specs(assets: ProjectAssets) -> list[AssetCheckSpec]:
    """Return the two checks that every view has, and those that it declares."""
    return [
        *(
            spec
            for key in assets.view_keys()
            for spec in (
                AssetCheckSpec(
                    name=MATCHES_FULL_RECOMPUTE,
                    asset=key,
                    description="The view and its query run in full hold the same rows, equally often, both ways.",
                ),
                AssetCheckSpec(
                    name=STREAM_KEY_UNIQUE,
                    asset=key,
                    description="No two rows of the view have the same stream key.",
                ),
            )
        ),
        *(
            AssetCheckSpec(name=key.name, asset=key.asset_key, description=check.described, blocking=check.blocking)
            for key, check in assets.declared_checks.items()
        ),
    ]


def _wired(project: Project, view: ViewDeclaration, spec: AssetSpec, keys: Mapping[str, AssetKey]) -> AssetSpec:
    """A view's spec with key, dependencies, and column lineage."""
    deps = {dep.asset_key: dep for dep in spec.deps}
    for name in project.upstream(view.name):
        deps.setdefault(keys[name], keys[name])  # type: ignore[arg-type] # a key stands for a dependency on it
    lineage = column_lineage(project, view.name, keys)
    spec = spec.replace_attributes(key=keys[view.name], deps=list(deps.values())).merge_attributes(metadata={VIEW: view.name})
    return spec if lineage is None else spec.merge_attributes(metadata={"dagster/column_lineage": lineage})


def _all_sources(project: Project) -> list[SourceDeclaration]:
    return [*project.sources, *(SourceDeclaration(name) for name in project.undeclared)]


def _given_keys(project: Project, sources: Mapping[str, AssetOf]) -> dict[str, AssetKey]:
    by_lower = {name.lower(): name for name in project.source_names}
    found: dict[str, AssetKey] = {}
    for name, asset in sources.items():
        if name.lower() not in by_lower:
            known = ", ".join(sorted(project.source_names)) or "none"
            raise DeclarationError(f"sources: the project has no source {name!r}; there are: {known}.")
        with _accepted(f"sources: {name}"):
            found[by_lower[name.lower()]] = _key_of(asset)
    return found


def _key_of(asset: AssetOf) -> AssetKey:
    return asset.key if isinstance(asset, AssetSpec) else AssetKey.from_coercible_or_definition(asset)


@contextmanager
def _accepted(at: str) -> Iterator[None]:
    """Turn Dagster's refusal of an attribute into an error of the declaration."""
    try:
        yield
    except (DagsterError, CheckError) as problem:
        raise DeclarationError(f"{at}: Dagster refuses it: {first_line(problem)}") from problem


def _check_keys(project: Project, keys: Mapping[str, AssetKey]) -> None:
    """Refuse duplicate keys, and keys that give no valid Dagster input names."""
    views = {view.name for view in project.views}
    used: dict[str, str] = {}
    for name, key in keys.items():
        at = f"view {where(project.view(name))}" if name in views else f"source {name}"
        wrong = [part for part in key.path if not _KEY_PART.fullmatch(part)]
        if wrong:
            raise DeclarationError(
                f"{at}: the asset key {key.to_user_string()!r} has the part {wrong[0]!r}; Dagster takes ASCII letters, digits, "
                "'_', '-' and '.' only: choose another key or prefix."
            )
        identifier = key.to_python_identifier()
        if identifier in DISALLOWED_NAMES:
            raise DeclarationError(
                f"{at}: Dagster reserves the name {identifier!r}: give the project a key prefix, or this asset another key."
            )
        for asset_name in {identifier, "_".join(key.path).replace("-", "_").replace(".", "_")}:
            other = used.setdefault(asset_name, name)
            if other != name:
                raise DeclarationError(
                    f"{at}: its asset key {key.to_user_string()!r} is for Dagster the same name as that of {other}, "
                    f"{keys[other].to_user_string()!r}: choose another key."
                )


def _check_check_names(assets: ProjectAssets) -> None:
    """Refuse checks whose outputs have the names of other outputs."""
    used = {key.to_python_identifier(): f"view {name}" for name, key in assets.keys.items() if name in assets.views}
    names = {spec.key: name for name, spec in assets.views.items()}
    for spec in check_specs(assets):
        view = assets.project.view(names[spec.asset_key])
        other = used.setdefault(spec.get_python_identifier(), f"check {spec.name} of {view.name}")
        if other != f"check {spec.name} of {view.name}":
            raise DeclarationError(
                f"{where(view)}: Dagster does not tell its check {spec.name} from {other}: give one of them another name."
            )
