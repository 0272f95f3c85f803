"""One hidden column in place of many in a view's stream key.

Views over views join them, and each join adds the hidden key columns of both sides: ids of rows, numbers of union branches.
After a few layers a row of five columns has twenty more, in its state, in its storage key and in all that is read of it. So
where more than two columns of a view's stream key are hidden, a digest of the whole key is its key.

The digest is the first 16 bytes of SHA-256 over an unambiguous text of the key. Two of 10¹² rows of a view have the same one
with a probability below 10⁻¹⁴.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from relstate_dagster.jobs.plan.consolidated import is_consolidated
from relstate_dagster.jobs.plan.nodes import Field, NamedExpr, PlanNode, Project
from relstate_dagster.jobs.planner.lowered import NameSpace
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.sql_type import SqlType

_NAME: Final = "_row_key"
_MOST_HIDDEN: Final = 2
#: SQL of a text for each type. Two values are equal exactly if their texts are.
_TEXTS: Final = {
    **dict.fromkeys(
        ("tinyint", "smallint", "int", "bigint", "boolean", "decimal", "date", "timestamp_ntz"), "CAST({0} AS STRING)"
    ),
    "timestamp": "CAST(unix_micros({0}) AS STRING)",  # the text of an instant depends on the session's time zone
    "string": "concat(CAST(octet_length({0}) AS STRING), ':', {0})",
    "binary": "hex({0})",
}
#: Stands for NULL: no text of a value begins like this.
_NULL: Final = "'n'"


def with_short_key(node: PlanNode, shown: Collection[str]) -> PlanNode:
    """The rows of a view with two hidden key columns at most.

    The node itself where its key is short, or has columns of other types (doubles, structs). It also is where the rows of an
    aggregate pass through unchanged, which saves a grouping.

    Parameters
    ----------
    shown : columns that readers see, or that rows are sorted by.
    """
    key = [node.field_named(name) for name in node.stream_key or ()]
    texts = [_text(quoted(f.name), f.type) for f in key]
    hidden = [f.name for f in key if f.name not in shown]
    if len(hidden) <= _MOST_HIDDEN or None in texts or is_consolidated(node):
        return node
    name = NameSpace(node.column_names).unique(_NAME)
    text = f"concat_ws('|', {', '.join(f'coalesce({t}, {_NULL})' for t in texts)})"
    digest = NamedExpr(f"substring(unhex(sha2({text}, 256)), 1, 16)", Field(name, "binary", nullable=False))
    kept = (NamedExpr(quoted(f.name), f) for f in node.schema if f.name not in hidden)
    return Project(node, (*kept, digest), (name,))


def _text(column: str, data_type: SqlType) -> str | None:
    """SQL of a text that only equal values have; ``None`` where there is none."""
    known = None if data_type.has_collations else _TEXTS.get(data_type.name)
    return None if known is None else known.replace("{0}", column)
