"""A source or upstream view for the planner: columns, key and append-only fact."""

from __future__ import annotations

from dataclasses import dataclass

from relstate_dagster.jobs.plan.nodes import Field


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation that a view may read.

    Parameters
    ----------
    name : the identifier that SQL uses.
    columns : the columns a query sees, in order.
    hidden_columns : columns that queries cannot name but that the relation's stream key needs.
    key : the stream key, out of both kinds of columns; ``None`` for a multiset.
    append_only : whether rows are only ever inserted.
    is_view : whether the relation is a materialized view of this warehouse.
    char_types : columns that are CHAR, or have some in them, and their types as they were declared: Spark compares these as if
        blanks at the end were not there.
    """

    name: str
    columns: tuple[Field, ...]
    key: tuple[str, ...] | None = None
    append_only: bool = False
    hidden_columns: tuple[Field, ...] = ()
    is_view: bool = False
    char_types: tuple[tuple[str, str], ...] = ()
