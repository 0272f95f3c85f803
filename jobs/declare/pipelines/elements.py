"""Elements of a pipeline's graph, as its files define them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from relstate_dagster.jobs.declare.query_function import Query


class Kind(enum.Enum):
    """Kinds of datasets; the values are what Spark calls them."""

    MATERIALIZED_VIEW = "materialized view"
    STREAMING_TABLE = "streaming table"
    TEMPORARY_VIEW = "temporary view"
    SINK = "sink"


@dataclass(frozen=True)
class Dataset:
    """A dataset that flows write to.

    Attributes
    ----------
    schema
        Columns as Spark's DDL writes them.
    expectations
        Conditions by their names, and whether a row that breaks one fails the run.
    ignored
        Arguments that change no row, for remarks.
    """

    kind: Kind
    name: str
    path: str
    line: int
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    cluster_by: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    schema: str | None = None
    column_names: tuple[str, ...] = ()
    column_comments: Mapping[str, str] = field(default_factory=dict)
    expectations: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Flow:
    """A query whose rows a dataset gets."""

    name: str
    target: str
    query: Query
    path: str
    line: int


@dataclass(frozen=True)
class CdcFlow:
    """Change events that a dataset gets the newest rows of, by their keys."""

    target: str
    source: str
    keys: tuple[str, ...]
    order: str
    deleted: str | None
    columns: tuple[str, ...]
    left_out: tuple[str, ...]
    path: str
    line: int


@dataclass
class Graph:
    """All elements of a pipeline."""

    datasets: list[Dataset] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    cdc_flows: list[CdcFlow] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
