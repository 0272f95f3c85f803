"""Queries of models over views and sources: compiled by dbt, or rendered here."""

from __future__ import annotations

from typing import Any, Final

from relstate_dagster.jobs.declare.catalog_tables import with_tables
from relstate_dagster.jobs.declare.dbt.manifest import Manifest, Node, title
from relstate_dagster.jobs.declare.dbt.rendering import rendered
from relstate_dagster.jobs.declare.table_tokens import table_places
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.sql_text import quoted

_IS_INCREMENTAL: Final = "macro.dbt.is_incremental"
#: Name of a common table expression for a table whose own name is hidden by another one.
_UNHIDDEN: Final = "__dbt__table__"


def query_of(manifest: Manifest, node: Node) -> str:
    """Query of a model over views and sources.

    Raises
    ------
    DeclarationError
        It has to be rendered, and calls what only dbt knows; or it reads a model that is left to dbt.
    """
    where = title(node)
    compiled = node.get("compiled_code")
    text = compiled if compiled and not has_incremental_text(manifest, node) else rendered(manifest, node)
    if not text.strip():
        raise DeclarationError(f"{where}: it has no query.")
    return over_names(manifest, text, where)


def has_incremental_text(manifest: Manifest, node: Node) -> bool:
    """Whether the text of a model differs between its first run and later ones."""
    if node["config"]["materialized"] != "incremental":
        return False
    if node["config"].get("incremental_strategy") == "microbatch" or "is_incremental" in node.get("raw_code", ""):
        return True
    macros: dict[str, Any] = manifest.content.get("macros", {})
    seen: set[str] = set()
    open_macros = list(node["depends_on"].get("macros", ()))
    while open_macros:
        macro = open_macros.pop()
        if macro not in seen:
            seen.add(macro)
            open_macros += macros.get(macro, {}).get("depends_on", {}).get("macros", ())
    return _IS_INCREMENTAL in seen


def over_names(manifest: Manifest, text: str, where: str) -> str:
    """A query with the tables of dbt replaced by views and sources."""
    relations = {manifest.relation(node): node for node in manifest.by_id.values() if node.get("relation_name")}
    hidden: dict[str, str] = {}
    pieces: list[str] = []
    position = 0
    for place in table_places(text, where):
        relation = tuple(part.lower() for part in place.parts)
        node = relations.get(relation)
        if node is None:
            continue
        name = manifest.names.get(relation)
        if name is None:
            raise DeclarationError(f"{where}: it reads {title(node)}, which is left to dbt: name the location of its table.")
        if name.lower() in place.hidden:
            name = hidden.setdefault(name, _UNHIDDEN + name)
        pieces += [text[position : place.start], quoted(name)]
        position = place.end + 1
    return with_tables("".join([*pieces, text[position:]]), {alias: name for name, alias in hidden.items()})
