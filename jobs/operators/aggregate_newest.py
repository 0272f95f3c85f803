"""Newest row of each key of a changelog.

Rows without an order are an error, late ones are counted.

A row is late if a newer one of its key was there at the view's last epoch. It changes nothing.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.aggregates.append_only_extreme import EXTREME
from relstate_dagster.jobs.plan.aggregates.kind import Version
from relstate_dagster.jobs.plan.nodes import Aggregate
from relstate_dagster.state_lib.row_encoding import parse_type
from relstate_dagster.state_lib.sql_text import quoted, text_literal

_WITH_NULLS: Final = "map('ignoreNullFields', 'false')"
_PLACES: Final = "_d_places"
_GREATEST: Final = "_d_greatest_digest"
_LEAST: Final = "_d_least_digest"
_LATE: Final = "_late_rows"
#: Beginning of the error of a row without a key. The remedy depends on the table (:mod:`.jobs.view_epoch.error_messages`).
NULL_KEY: Final = "a changelog has a row with a NULL in its key: "
_REMEDY: Final = (
    "; insert a newer row of this key, which replaces both: one with a greater 'source.order', or where there is no such "
    "property one in a later commit. 'source.order' names a column or an expression that tells rows apart; without it, a "
    "commit has a key once"
)


def folds(node: Aggregate, *, is_new: bool) -> dict[str, str]:
    """Additional folds of a changelog's groups.

    Of the rows at the last place in the order, the greatest and the least digest. The places of all rows too, if older rows
    may exist that these come after.
    """
    if not node.is_of_changelog:
        return {}
    row = quoted(node.calls[0].arguments[0])
    place, digest = f"{row}.{_place(node)}", f"xxhash64({row})"
    found = {
        _GREATEST: f"max(named_struct('place', {place}, 'digest', {digest})).digest",
        _LEAST: f"~(max(named_struct('place', {place}, 'digest', ~{digest})).digest)",
    }
    return found if is_new else {**found, _PLACES: f"collect_list(struct({place}))"}


def checked(node: Aggregate, groups: DataFrame) -> DataFrame:
    """Groups with their old and new rows, checked, and how many rows came late."""
    if not node.is_of_changelog:
        return groups
    place, key = _place(node), columns_of(node.group)
    old, changed, new = (Version(version, 0)[EXTREME] for version in ("old", "d", "new"))
    ties = (
        f"({changed}.{place} <=> {new}.{place} AND {_GREATEST} != {_LEAST}) "
        f"OR ({old}.{place} <=> {changed}.{place} AND {old} IS NOT NULL AND NOT ({old} <=> {changed}))"
    )
    named = f"to_json(named_struct({', '.join(f'{text_literal(name)}, {quoted(name)}' for name in node.group)}), {_WITH_NULLS})"
    problems = (
        (" OR ".join(f"{column} IS NULL" for column in key), NULL_KEY, ""),
        (ties, "a changelog has two different rows of one key, and neither is the newer one: ", _REMEDY),
    )
    cases = " ".join(
        f"WHEN {condition} THEN CAST(raise_error(concat({text_literal(message)}, {named}, {text_literal(remedy)})) AS "
        f"{node.calls[0].argument_types[0]})"
        for condition, message, remedy in problems
    )
    columns = groups.columns
    late = "0"
    if _PLACES in columns:
        late = f"IF({old} IS NULL, 0, size(filter({_PLACES}, at -> at < struct({old}.{place}))))"
    others = [quoted(column) for column in columns if column not in (new, _PLACES, _GREATEST, _LEAST)]
    return groups.selectExpr(*others, f"CASE {cases} ELSE {new} END AS {new}", f"{late} AS {_LATE}")


def late_rows(ctx: EpochContext, node: Aggregate, groups: RowSet) -> int:
    """Count the rows that came late, in shared groups."""
    if not node.is_of_changelog or ctx.state_is_new(node):
        return 0
    return groups.total(_LATE)


def _place(node: Aggregate) -> str:
    """The first field of the rows: by it they are ordered."""
    row = parse_type(node.calls[0].argument_types[0])
    assert isinstance(row, T.StructType)
    return quoted(row.names[0])
