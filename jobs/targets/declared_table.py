"""A published table as its view declares it. No Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Layout of a published table: ``CLUSTER BY``, ``PARTITIONED BY``, and comments of columns."""

    cluster_by: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    column_comments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeclaredTable:
    """A published table as its view declares it.

    Parameters
    ----------
    view : name of the view.
    application : of the transactions by which epochs of this generation write.
    columns : names and types (DDL), without the hidden key.
    properties : of the table.
    is_restored : a run undoes changes of its rows by other writers.
    """

    view: str
    application: str
    columns: tuple[tuple[str, str], ...]
    layout: TableLayout
    properties: Mapping[str, str]
    comment: str | None = None
    is_restored: bool = False
