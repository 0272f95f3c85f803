"""Declared views and sources as Dagster asset specs. Nothing here reads a table or starts a JVM."""

from __future__ import annotations

import hashlib
import json

from dagster import AssetCheckSpec, AssetKey, AssetSpec

from relstate_dagster.assets.metadata import source_metadata, view_metadata
from relstate_dagster.jobs.declare import Project, SourceDeclaration, ViewDeclaration
from relstate_dagster.state_lib.errors import DeclarationError

MATCHES_FULL_RECOMPUTE = "matches_full_recompute"
STREAM_KEY_UNIQUE = "stream_key_unique"


def view_specs(project: Project) -> list[AssetSpec]:
    """Return one spec for each view, upstream first."""
    return [_view_spec(project, view) for view in project.views]


def source_specs(project: Project) -> list[AssetSpec]:
    """Return one spec for each source that is declared or read; Dagster only observes them."""
    declared = [
        AssetSpec(
            key=AssetKey(source.name),
            description=source.comment,
            group_name="sources",
            kinds={"delta"},
            metadata=source_metadata(source),
        )
        for source in project.sources
    ]
    return declared + [AssetSpec(AssetKey(name), group_name="sources", kinds={"delta"}) for name in project.undeclared]


def check_specs(project: Project) -> list[AssetCheckSpec]:
    """Return the two checks of every view."""
    return [
        spec
        for view in project.views
        for spec in (
            AssetCheckSpec(
                name=MATCHES_FULL_RECOMPUTE,
                asset=AssetKey(view.name),
                description="The view and its query run in full hold the same rows, equally often, both ways.",
            ),
            AssetCheckSpec(
                name=STREAM_KEY_UNIQUE,
                asset=AssetKey(view.name),
                description="No two rows of the view have the same stream key.",
            ),
        )
    ]


def _view_spec(project: Project, view: ViewDeclaration) -> AssetSpec:
    return AssetSpec(
        key=AssetKey(view.name),
        deps=[AssetKey(name) for name in project.upstream(view.name)],
        description=view.comment,
        group_name=view.properties.get("dagster.group", "views"),
        owners=_listed(view, "dagster.owners"),
        tags=_tags(view),
        kinds={"spark", "delta"},
        code_version=_code_version(project, view),
        metadata=view_metadata(project, view),
    )


def _listed(view: ViewDeclaration, key: str) -> list[str]:
    return [part.strip() for part in view.properties.get(key, "").split(",") if part.strip()]


def _tags(view: ViewDeclaration) -> dict[str, str]:
    """Read ``dagster.tags``: ``tier=gold, team=ops``."""
    tags: dict[str, str] = {}
    for part in _listed(view, "dagster.tags"):
        name, equals, text = part.partition("=")
        if not equals:
            raise DeclarationError(
                f"{view.path or 'view'}:{view.line}: {view.name}: 'dagster.tags' holds {part!r}; write 'name=text, …'."
            )
        tags[name.strip()] = text.strip()
    return tags


def _code_version(project: Project, view: ViewDeclaration) -> str:
    """Return a digest of the query, and of the plain views that it inlines."""
    inlined = {plain.name: plain.sql for plain in project.plain_views}
    text = json.dumps([view.sql, [inlined.get(name) for name in project.reads.get(view.name, ())]])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def declared_source(project: Project, name: str) -> SourceDeclaration | None:
    """Return the declaration of a source, if it has one."""
    return next((source for source in project.sources if source.name == name), None)
