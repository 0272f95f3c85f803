"""Columns of sources that a plan reads.

A scan has all columns, and Spark prunes them when they are read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from relstate_dagster.jobs.plan.nodes import Filter, PlanNode, Project, Scan

#: Whatever may be a name in SQL text: what stands between backticks, and words. Those of literals are found, too.
_NAMES: Final = re.compile(r"`((?:[^`]|``)+)`|(\w+)")


def used_columns(plan: PlanNode) -> dict[str, set[str]]:
    """At least the columns read of each relation.

    Nothing above a scan names any other.
    """
    found: dict[str, set[str]] = {}
    _visit(plan, None, found)
    return found


def _visit(node: PlanNode, texts: Sequence[str] | None, found: dict[str, set[str]]) -> None:
    """Collect used columns.

    ``texts`` are all expressions above; without them, all columns are read.
    """
    if isinstance(node, Scan):
        names = None if texts is None else _names(texts)
        columns = (c for c in node.column_names if names is None or c.lower() in names)
        found.setdefault(node.relation, set()).update(columns)
    elif isinstance(node, Project):
        names = None if texts is None else _names(texts)
        read = [e.sql for e in node.expressions if names is None or e.output.name.lower() in names]
        _visit(node.child, read, found)
    elif isinstance(node, Filter):
        _visit(node.child, None if texts is None else [*texts, node.condition], found)
    else:
        for child in node.children:
            _visit(child, None, found)


def _names(texts: Sequence[str]) -> set[str]:
    """Names in some SQL, in lower case.

    Spark finds columns in any case.
    """
    return {(quoted or word).replace("``", "`").lower() for text in texts for quoted, word in _NAMES.findall(text)}
