"""Tests of dbt as checks of views."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from relstate_dagster.jobs.declare.checks import CHECKS, SEVERITY
from relstate_dagster.jobs.declare.dbt.manifest import Manifest, Node
from relstate_dagster.jobs.declare.statements import Cursor, split_statements
from relstate_dagster.jobs.declare.table_tokens import table_places
from relstate_dagster.state_lib.sql_text import quoted, text_literal

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_REF: Final = re.compile(r"\s*(ref|source)\s*\((.*)\)\s*", re.S)
_TEXT: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")


def checks_by_model(manifest: Manifest) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Properties of checks by ids of models, and names of tests without one."""
    views = {node["unique_id"]: manifest.relation(node) for node in manifest.views}
    by_relation = {relation: key for key, relation in views.items()}
    found: dict[str, dict[str, str]] = {}
    left: list[str] = []
    for test in manifest.tests:
        model, check = test.get("attached_node"), None
        if not _has_defaults(test["config"]):
            pass
        elif test.get("test_metadata") is None:
            relation, check = _of_one_table(test)
            model = by_relation.get(relation)
        elif model in views:
            check = _check(manifest, test)
        if check is None or model is None:
            left.append(test["name"])
            continue
        kind, text = check
        of_model = found.setdefault(str(model), {})
        name = _name(test["name"], of_model)
        of_model[f"{CHECKS}{name}.{kind}"] = text
        if str(test["config"].get("severity", "error")).lower() == "warn":
            of_model[f"{CHECKS}{name}.{SEVERITY}"] = "warn"
    return found, left


def _has_defaults(config: Mapping[str, Any]) -> bool:
    """Whether a test fails by any row that it returns."""
    bounds = (config.get("warn_if") or "!= 0", config.get("error_if") or "!= 0", config.get("fail_calc") or "count(*)")
    return bounds == ("!= 0", "!= 0", "count(*)") and not config.get("limit")


def _of_one_table(test: Node) -> tuple[tuple[str, ...], tuple[str, str] | None]:
    """Table and check of a test in SQL that filters one table."""
    text = test.get("compiled_code") or ""
    try:
        query = sqlglot.parse_one(text, dialect="spark")
    except (SqlglotError, RecursionError):
        return (), None
    clauses = {name for name, clause in query.args.items() if clause} - {"expressions", "from_", "where", "kind"}
    is_filter = isinstance(query, exp.Select) and not clauses and query.args.get("where") is not None
    hidden = (exp.Subquery, exp.AggFunc, exp.Window, exp.Exists)
    if not is_filter or query.find(*hidden) or any(column.table for column in query.find_all(exp.Column)):
        return (), None
    places = table_places(text, test["name"])
    cursor = Cursor(split_statements(text)[0])
    while not cursor.accept("WHERE"):
        cursor.index += 1
    relation = tuple(part.lower() for part in places[0].parts) if len(places) == 1 else ()
    return relation, ("expect", f"NOT coalesce({cursor.rest()}, false)")


def _check(manifest: Manifest, test: Node) -> tuple[str, str] | None:
    """Kind and text of the check for a generic test."""
    metadata, where = test["test_metadata"], test["config"].get("where")
    given: Mapping[str, Any] = metadata["kwargs"]
    given = {**given, **(given.get("arguments") or {})}
    column = str(test.get("column_name") or given.get("column_name") or "").strip("`")
    if column and not _PLAIN.fullmatch(column):
        return None
    name = ".".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
    if name == "dbt_utils.expression_is_true" and given.get("expression"):
        check: tuple[str, str] | None = ("expect", f"coalesce({quoted(column) if column else ''} {given['expression']}, true)")
    else:
        check = _of_column(manifest, test, name, column, given) if column else None
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
    if kind == "accepted":
        return f"coalesce({text}, true)"
    return text if kind == "expect" else None


def _name(test: str, known: Mapping[str, str]) -> str:
    """Name of a check: that of the test, with a number where two have one."""
    base = re.sub(r"\W", "_", test, flags=re.ASCII)
    names = {key.split(".")[1].lower() for key in known}
    number, name = 1, base
    while name.lower() in names:
        number += 1
        name = f"{base}_{number}"
    return name
