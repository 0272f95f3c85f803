"""The manifest of a dbt project: nodes, their names here, and settings in ``meta``."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from relstate_dagster.jobs.declare.names import check_name
from relstate_dagster.state_lib.errors import DeclarationError

#: A model, seed, snapshot, source or test, as dbt writes it.
Node: TypeAlias = Mapping[str, Any]

PROJECT_FILE: Final = "dbt_project.yml"
_ADAPTERS: Final = ("spark", "databricks")
#: Materializations of models that become materialized views.
_VIEWS: Final = ("view", "table", "materialized_view", "incremental")
#: Keys of ``meta.relstate``.
OURS: Final = ("location", "location_root", "primary_key", "properties", "publish", "skip")
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def settings_of(node: Node) -> Mapping[str, Any]:
    """``meta.relstate`` of a node, checked."""
    found = meta_of(node).get("relstate") or {}
    known = isinstance(found, Mapping) and set(found) <= set(OURS)
    if not known or not isinstance(found.get("properties") or {}, Mapping) or not isinstance(found.get("publish", False), bool):
        raise DeclarationError(
            f"{title(node)}: meta.relstate is a mapping of {', '.join(OURS)}; properties is a mapping, publish true or false."
        )
    return found


def meta_of(node: Node) -> Mapping[str, Any]:
    """``meta`` of a node, from its configuration or its properties."""
    return node.get("config", {}).get("meta") or node.get("meta") or {}


def title(node: Node) -> str:
    """File, kind and name of a node, as messages begin."""
    kind = "Python model" if node.get("language") == "python" else node["resource_type"]
    name = f"{node['source_name']}.{node['name']}" if kind == "source" else node["name"]
    return f"{node['original_file_path']}: {kind} {name}"


def asset_key(node: Node) -> str:
    """Asset key of a node by the default rules of dagster-dbt, with slashes."""
    key = (meta_of(node).get("dagster") or {}).get("asset_key")
    if key:
        return key if isinstance(key, str) else "/".join(key)
    if node["resource_type"] == "source":
        return f"{node['source_name']}/{node['name']}"
    if node.get("version"):
        return str(node["alias"])
    schema = node["config"].get("schema")
    return f"{schema}/{node['name']}" if schema is not None else str(node["name"])


@dataclass(frozen=True)
class Manifest:
    """A dbt project's folder and the content of its manifest.

    Attributes
    ----------
    settings
        The content of ``dbt_project.yml``.
    """

    root: Path
    settings: Mapping[str, Any]
    content: Mapping[str, Any]

    @cached_property
    def views(self) -> tuple[Node, ...]:
        """Models that become materialized views."""
        return tuple(node for node in self._nodes() if _is_view(node) and not _location_in_meta(node))

    @cached_property
    def inlined(self) -> tuple[Node, ...]:
        """Ephemeral models."""
        models = (node for node in self._nodes() if _is_sql(node) and not _location_in_meta(node))
        return tuple(node for node in models if node["config"]["materialized"] == "ephemeral")

    @cached_property
    def sources(self) -> tuple[Node, ...]:
        """Sources, seeds, and nodes whose tables dbt goes on to build."""
        located = (node for node in self._nodes() if node["resource_type"] == "seed" or _location_in_meta(node))
        declared = (node for node in self.content["sources"].values() if not settings_of(node).get("skip"))
        built = {self.relation(node) for node in (*self.views, *self.inlined)}
        found: dict[tuple[str, ...], Node] = {}
        for node in (*declared, *located):
            if self.relation(node) not in built:
                found.setdefault(self.relation(node), node)
        return tuple(found.values())

    @cached_property
    def refused(self) -> tuple[Node, ...]:
        """Nodes that are neither views nor read as sources."""
        known = {node["unique_id"] for node in (*self.views, *self.inlined)}
        return tuple(
            node
            for node in self._nodes()
            if node["unique_id"] not in known and node["resource_type"] != "seed" and not _location_in_meta(node)
        )

    @cached_property
    def tests(self) -> tuple[Node, ...]:
        """Generic and singular tests of data."""
        return tuple(node for node in self.content["nodes"].values() if node["resource_type"] == "test")

    @cached_property
    def names(self) -> Mapping[tuple[str, ...], str]:
        """Names of views and sources here, by their relations in dbt.

        A model has its alias, with its schema before it where two models have the same one. A source has its own name before
        that of the table; if a model is called so, as is customary, ``source__`` stands before them.
        """
        models = (*self.views, *self.inlined)
        aliases = Counter(node["alias"].lower() for node in models)
        found: dict[tuple[str, ...], str] = {}
        for node in (*models, *self.sources):
            if node["resource_type"] == "source":
                name = f"{node['source_name']}__{node['name']}"
                name = f"source__{name}" if name.lower() in aliases else name
            elif aliases[node["alias"].lower()] > 1:
                name = f"{node['schema']}__{node['alias']}"
            else:
                name = node["alias"]
            found[self.relation(node)] = check_name(name, node["resource_type"], node["original_file_path"])
        return found

    @cached_property
    def by_id(self) -> Mapping[str, Node]:
        """Nodes and sources by their ids."""
        return {**self.content["nodes"], **self.content["sources"]}

    def name(self, node: Node) -> str | None:
        """Name of a node here; None if it is neither a view nor a source."""
        return self.names.get(self.relation(node))

    def relation(self, node: Node) -> tuple[str, ...]:
        """Parts of the name of a node's table, in lower case.

        Its id where it has no table.
        """
        text = node.get("relation_name")
        return relation_parts(text) if text else (node["unique_id"],)

    def path(self, node: Node) -> str:
        """Path of the file of a node."""
        return str(self.root / node["original_file_path"])

    def location(self, node: Node) -> str | None:
        """Place of a source's Delta table; None for a table in the warehouse's folder ``sources``."""
        location = _location_in_meta(node)
        if location is None and node["resource_type"] == "seed" and node["config"].get("location_root"):
            location = f"{node['config']['location_root']}/{node['alias']}"
        if location is None or re.match(r"[A-Za-z][A-Za-z0-9+.-]+:|/", location):
            return location
        return str((self.root / location).resolve())

    def _nodes(self) -> Iterator[Node]:
        """Models, seeds and snapshots that are not left out."""
        for node in self.content["nodes"].values():
            if node["resource_type"] in ("model", "seed", "snapshot") and not settings_of(node).get("skip"):
                yield node


def relation_parts(text: str) -> tuple[str, ...]:
    """Parts of a relation's name as dbt writes it, in lower case."""
    return tuple((quoted.replace("``", "`") or plain).lower() for quoted, plain in _PART.findall(text))


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of a dbt project.

    Raises
    ------
    DeclarationError
        There is none yet, it cannot be read, or dbt wrote it for another dialect than Spark's.
    """
    settings = yaml.safe_load((root / PROJECT_FILE).read_text(encoding="utf-8")) or {}
    path = root / (os.environ.get("DBT_TARGET_PATH") or settings.get("target-path") or "target") / "manifest.json"
    if not path.is_file():
        raise DeclarationError(f"{root} is a dbt project without {path}: run `dbt compile` there first.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        adapter = content["metadata"]["adapter_type"]
    except (ValueError, KeyError, TypeError) as problem:
        raise DeclarationError(f"{path} is no manifest of dbt: run `dbt compile` again.") from problem
    if adapter not in _ADAPTERS:
        raise DeclarationError(
            f"{path}: its SQL is for {adapter}; views are written in Spark SQL. "
            f"Run `dbt compile` with a profile of type {' or '.join(_ADAPTERS)}."
        )
    return Manifest(root, settings, content)


def _is_sql(node: Node) -> bool:
    return bool(node["resource_type"] == "model" and node.get("language", "sql") == "sql")


def _is_view(node: Node) -> bool:
    return _is_sql(node) and node["config"]["materialized"] in _VIEWS


def _location_in_meta(node: Node) -> str | None:
    settings = settings_of(node)
    if settings.get("location"):
        return str(settings["location"])
    if settings.get("location_root"):
        return f"{settings['location_root']}/{node.get('identifier') or node.get('alias') or node['name']}"
    return None


def listed(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """A setting that is one text or a list of texts."""
    return (value,) if isinstance(value, str) else tuple(value or ())
