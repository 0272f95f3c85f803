"""Declarations of a dbt project: models as views, sources and seeds as sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from relstate_dagster.jobs.declare.catalog_tables import table_text
from relstate_dagster.jobs.declare.dbt.manifest import (
    Manifest,
    Node,
    asset_key,
    listed,
    meta_of,
    settings_of,
    title,
)
from relstate_dagster.jobs.declare.dbt.model_tests import checks_by_model
from relstate_dagster.jobs.declare.dbt.queries import has_incremental_text, query_of
from relstate_dagster.jobs.declare.model import PUBLISH_TABLE, PlainView, SourceDeclaration, ViewDeclaration
from relstate_dagster.jobs.declare.parser import check_view_properties
from relstate_dagster.state_lib.errors import DeclarationError

Declared: TypeAlias = ViewDeclaration | PlainView | SourceDeclaration

_KINDS: Final = "dbt, spark, delta"
#: Tags that Dagster takes as keys.
_TAG: Final = re.compile(r"[A-Za-z0-9_.-]{1,63}(/[A-Za-z0-9_.-]{1,63})?", re.ASCII)


@dataclass(frozen=True)
class DbtDeclarations:
    """Declarations of a dbt project, and remarks on parts of it that are not used."""

    declared: tuple[Declared, ...]
    remarks: tuple[str, ...] = field(default=())


def dbt_declarations(manifest: Manifest) -> DbtDeclarations:
    """Read a project from its manifest.

    Raises
    ------
    DeclarationError
        A snapshot, a Python model or another materialization is in it, a model's text needs dbt, or its SQL is refused.
    """
    _refuse(manifest.refused)
    checks, left_tests = checks_by_model(manifest)
    declared: list[Declared] = [_source(manifest, node) for node in manifest.sources]
    declared += (_plain_view(manifest, node) for node in manifest.inlined)
    declared += (_view(manifest, node, checks.get(node["unique_id"], {})) for node in manifest.views)
    return DbtDeclarations(tuple(declared), tuple(_remarks(manifest, left_tests)))


def _refuse(nodes: Iterable[Node]) -> None:
    found = [title(node) if _is_named(node) else f"{title(node)} ({node['config']['materialized']})" for node in nodes]
    if found:
        raise DeclarationError(
            f"only dbt builds these: {'; '.join(found)}. Views are models in SQL that are view, table, materialized_view, "
            "incremental or ephemeral. To read a table that dbt builds, write meta: {relstate: {location: …}} at its node; "
            "to leave a node out, meta: {relstate: {skip: true}}."
        )


def _is_named(node: Node) -> bool:
    """Whether the title of a node says why it is refused."""
    return node["resource_type"] == "snapshot" or node.get("language") == "python"


def _source(manifest: Manifest, node: Node) -> SourceDeclaration:
    location = manifest.location(node)
    return SourceDeclaration(
        name=str(manifest.name(node)),
        primary_key=listed(settings_of(node).get("primary_key")),
        location=location,
        comment=node.get("description") or None,
        properties={"dagster.key": asset_key(node)},
        path=manifest.path(node),
        table=None if location is not None or not node.get("relation_name") else table_text(manifest.relation(node)),
        may_be_here=True,
    )


def _plain_view(manifest: Manifest, node: Node) -> PlainView:
    return PlainView(str(manifest.name(node)), query_of(manifest, node), node["description"] or None, path=manifest.path(node))


def _view(manifest: Manifest, node: Node, checks: dict[str, str]) -> ViewDeclaration:
    config = node["config"]
    columns = node.get("columns", {}).values()
    settings = settings_of(node)
    named = {PUBLISH_TABLE: table_text(manifest.relation(node))} if settings.get("publish") else {}
    own = {str(key): str(value) for key, value in (settings.get("properties") or {}).items()}
    return check_view_properties(
        ViewDeclaration(
            name=str(manifest.name(node)),
            query=query_of(manifest, node),
            comment=node.get("description") or None,
            cluster_by=listed(config.get("liquid_clustered_by")),
            partitioned_by=listed(config.get("partition_by")),
            properties={**_dagster_properties(manifest, node), **checks, **named, **own},
            described_columns={column["name"]: column["description"] for column in columns if column.get("description")},
            path=manifest.path(node),
        )
    )


def _dagster_properties(manifest: Manifest, node: Node) -> dict[str, str]:
    """Key, group, owners and tags, as dagster-dbt gives them."""
    dagster: dict[str, Any] = meta_of(node).get("dagster") or {}
    group = node["config"].get("group") or node.get("group")
    owner = manifest.content.get("groups", {}).get(f"group.{node['package_name']}.{group}", {}).get("owner", {})
    owners = listed(dagster.get("owners")) or listed(owner.get("email"))
    tags = [f"{tag}=" for tag in node.get("tags", ()) if _TAG.fullmatch(tag)]
    found = {
        "dagster.key": asset_key(node),
        "dagster.group": dagster.get("group") or group,
        "dagster.owners": ", ".join(owners),
        "dagster.tags": ", ".join(tags),
        "dagster.kinds": _KINDS,
    }
    return {key: text for key, text in found.items() if text}


def _remarks(manifest: Manifest, left_tests: Iterable[str]) -> Iterator[str]:
    incremental = [str(manifest.name(node)) for node in manifest.views if has_incremental_text(manifest, node)]
    hooked = [str(manifest.name(node)) for node in manifest.views if _hooks(node)]
    for remark, names in (
        ("is_incremental() is false, and its blocks are dropped, in", incremental),
        ("hooks are not run, of", hooked),
        ("tests are left to dbt:", left_tests),
    ):
        if together := ", ".join(names):
            yield f"dbt: {remark} {together}"


def _hooks(node: Node) -> bool:
    return bool(node["config"].get("pre-hook") or node["config"].get("post-hook"))
