"""Small dbt projects, with manifests as dbt writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class DbtProject:
    """A folder with ``dbt_project.yml`` and a manifest of what is added."""

    def __init__(self, folder: Path, settings: str = "name: shop\n") -> None:
        self.folder = folder
        self.adapter = "spark"
        self.nodes: dict[str, dict[str, Any]] = {}
        self.sources: dict[str, dict[str, Any]] = {}
        self.macros: dict[str, dict[str, Any]] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "dbt_project.yml").write_text(settings)

    def source(self, source: str, name: str, **relstate: Any) -> None:
        """Add a table of a source; `relstate` is in its ``meta``."""
        self.sources[f"source.shop.{source}.{name}"] = {
            "unique_id": f"source.shop.{source}.{name}",
            "resource_type": "source",
            "source_name": source,
            "name": name,
            "identifier": name,
            "relation_name": f"{source}.{name}",
            "original_file_path": "models/sources.yml",
            "description": f"the {name}",
            "package_name": "shop",
            "meta": {"relstate": relstate},
            "config": {},
        }

    def node(self, name: str, raw: str, compiled: str | None = None, kind: str = "model", **others: Any) -> dict[str, Any]:
        """Add a node; ``config`` and attributes by name."""
        config = {"materialized": "table", "tags": [], "meta": {}, **others.pop("config", {})}
        names = {key.split(".")[-1]: key for key in (*self.nodes, *self.sources)}
        node = {
            "unique_id": f"{kind}.shop.{name}",
            "resource_type": kind,
            "name": name,
            "alias": name,
            "schema": "dev",
            "relation_name": None if config["materialized"] in ("ephemeral", "test") else f"dev.{name}",
            "original_file_path": f"models/{name}.sql",
            "description": "",
            "package_name": "shop",
            "language": "sql",
            "columns": {},
            "tags": [],
            "meta": config["meta"],
            "raw_code": raw,
            "compiled_code": compiled,
            "depends_on": {"macros": [], "nodes": [key for short, key in names.items() if f"'{short}'" in raw]},
            "config": config,
            **others,
        }
        self.nodes[node["unique_id"]] = node
        return node

    def test(self, model: str, test: str, column: str | None, arguments: dict[str, Any] | None = None, **config: Any) -> None:
        """Add a generic test of a column."""
        self.node(
            f"{test}_{model}_{column}",
            "{{ test }}",
            kind="test",
            config={"materialized": "test", "severity": "ERROR", "where": None, "error_if": "!= 0", **config},
            attached_node=f"model.shop.{model}",
            column_name=column,
            test_metadata={
                "name": test.split(".")[-1],
                "kwargs": {"column_name": column, **(arguments or {})},
                "namespace": test.split(".")[0] if "." in test else None,
            },
            depends_on={"macros": [], "nodes": [*self.nodes, *self.sources]},
        )

    def macro(self, name: str, text: str, package: str = "shop", depends_on: tuple[str, ...] = ()) -> None:
        """Add a macro."""
        self.macros[f"macro.{package}.{name}"] = {
            "name": name,
            "package_name": package,
            "macro_sql": text,
            "depends_on": {"macros": list(depends_on)},
        }

    def write(self) -> Path:
        """Write the manifest."""
        content = {
            "metadata": {"adapter_type": self.adapter},
            "nodes": self.nodes,
            "sources": self.sources,
            "macros": self.macros,
            "groups": self.groups,
        }
        (self.folder / "target").mkdir(exist_ok=True)
        (self.folder / "target" / "manifest.json").write_text(json.dumps(content))
        return self.folder
