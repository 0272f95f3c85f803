"""Tests of dbt as checks of views."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from relstate_dagster.jobs.declare.checks import CHECKS, SEVERITY
from relstate_dagster.jobs.declare.dbt.manifest import Manifest, Node
from relstate_dagster.state_lib.sql_text import quoted, text_literal

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_REF: Final = re.compile(r"\s*(ref|source)\s*\((.*)\)\s*", re.S)
_TEXT: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")


def checks_by_model(manifest: Manifest) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Properties of checks by ids of models, and names of tests without one."""
    views = {node["unique_id"] for node in manifest.views}
    found: dict[str, dict[str, str]] = {}
    left: list[str] = []
    for test in manifest.tests:
        model = test.get("attached_node")
        check = _check(manifest, test) if model in views else None
        if check is None:
            left.append(test["name"])
            continue
        kind, text = check
        of_model = found.setdefault(str(model), {})
        name = _name(test["name"], of_model)
        of_model[f"{CHECKS}{name}.{kind}"] = text
        if str(test["config"].get("severity", "error")).lower() == "warn":
            of_model[f"{CHECKS}{name}.{SEVERITY}"] = "warn"
    return found, left


def _check(manifest: Manifest, test: Node) -> tuple[str, str] | None:
    """Kind and text of the check for a generic test."""
    metadata, config = test.get("test_metadata"), test["config"]
    if metadata is None or metadata.get("namespace") not in (None, "dbt"):
        return None
    given: Mapping[str, Any] = metadata["kwargs"]
    given = {**given, **(given.get("arguments") or {})}
    column = test.get("column_name") or given.get("column_name")
    is_default = all(config.get(key) in (None, "!= 0") for key in ("warn_if", "error_if"))
    if not column or not is_default or config.get("limit") or config.get("fail_calc", "count(*)") != "count(*)":
        return None
    column = str(column).strip("`")
    if not _PLAIN.fullmatch(column):
        return None
    check = _of_column(manifest, test, metadata["name"], column, given)
    where = config.get("where")
    if not where or check is None:
        return check
    condition = _condition(*check)
    return None if condition is None else ("expect", f"NOT coalesce(({where}), false) OR {condition}")


def _of_column(manifest: Manifest, test: Node, name: str, column: str, given: Mapping[str, Any]) -> tuple[str, str] | None:
    """Kind and text of the check for a test of a column, over all rows."""
    if name in ("not_null", "unique"):
        return name, quoted(column)
    if name == "accepted_values" and given.get("values"):
        is_text = given.get("quote", True)
        values = ", ".join(text_literal(str(value)) if is_text else str(value) for value in given["values"])
        return "accepted", f"{quoted(column)} IN ({values})"
    if name == "relationships":
        other = _relation(manifest, test, str(given.get("to", "")))
        return None if other is None else ("references", f"{quoted(column)} IN {quoted(other)}({quoted(str(given['field']))})")
    return None


def _relation(manifest: Manifest, test: Node, to: str) -> str | None:
    """Name of the view or source that ``ref('…')`` or ``source('…', '…')`` means."""
    reference = _REF.fullmatch(to)
    names = [one or other for one, other in _TEXT.findall(reference[2])] if reference else []
    for key in test["depends_on"]["nodes"]:
        node = manifest.by_id.get(key)
        if names and node is not None and node["name"] == names[-1] and key != test.get("attached_node"):
            return manifest.name(node)
    return None


def _condition(kind: str, text: str) -> str | None:
    """Condition of each row, of kinds that have one."""
    if kind == "not_null":
        return f"{text} IS NOT NULL"
    return f"coalesce({text}, true)" if kind == "accepted" else None


def _name(test: str, known: Mapping[str, str]) -> str:
    """Name of a check: that of the test, with a number where two have one."""
    base = re.sub(r"\W", "_", test, flags=re.ASCII)
    names = {key.split(".")[1].lower() for key in known}
    number, name = 1, base
    while name.lower() in names:
        number += 1
        name = f"{base}_{number}"
    return name
