"""Statements as frozen records, without Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from relstate_dagster.jobs.declare.kept_rows import EXTREME_ROWS, SPARE_ROWS, WINDOW_ROWS
from relstate_dagster.jobs.declare.query_function import Query
from relstate_dagster.jobs.declare.state_ttl import STATE_TTL
from relstate_dagster.state_lib.sql_text import quoted, text_literal

#: The values of ``refresh.policy``.
REFRESH_POLICY: Final = "refresh.policy"
STRICT: Final = "incremental, strict"
REFRESH_POLICIES: Final = ("auto", "incremental", "full", STRICT)
#: What a run does where somebody else has changed the rows of a view's published table, and its values.
PUBLISH_ON_CHANGE: Final = "publish.on_change"
ON_CHANGE: Final = ("error", "restore")
#: The name in Spark's catalog that a view's published table gets.
PUBLISH_TABLE: Final = "publish.table"
#: What current time functions give: the instant of the run, or the start of its day.
REFRESH_TIME: Final = "refresh.time"
REFRESH_TIMES: Final = ("run", "day")
#: How sums of floating-point numbers are kept: as exact sums of a limited range, or by the rows of their groups.
FLOAT_SUMS: Final = "state.float_sums"
FLOAT_SUMS_KEPT: Final = ("exact", "rows")
#: How properties of ours begin; a key that does, and is not known, is taken for a typing error.
OURS: Final = ("refresh.", "publish.", "dagster.", "state.", "source.", "history", "index.", "check.")
#: Those that a view may set, besides checks (:mod:`.jobs.declare.checks`).
VIEW_PROPERTIES: Final = (
    REFRESH_POLICY,
    REFRESH_TIME,
    PUBLISH_ON_CHANGE,
    PUBLISH_TABLE,
    EXTREME_ROWS.name,
    SPARE_ROWS.name,
    WINDOW_ROWS.name,
    STATE_TTL,
    FLOAT_SUMS,
    "dagster.group",
    "dagster.key",
    "dagster.owners",
    "dagster.tags",
    "dagster.kinds",
    "dagster.automation",
    "dagster.freshness",
)


def declared_policy(properties: Mapping[str, str]) -> str:
    """The refresh policy as declared, with one space after a comma."""
    return ", ".join(part.strip() for part in properties.get(REFRESH_POLICY, "auto").split(","))


def planned_policy(properties: Mapping[str, str]) -> str:
    """The policy that a view is planned by: ``auto`` (the default), ``incremental`` or ``full``."""
    policy = declared_policy(properties)
    return "incremental" if policy == STRICT else policy


def is_by_days(properties: Mapping[str, str]) -> bool:
    """Whether current time functions give the start of the day in a view."""
    return properties.get(REFRESH_TIME, "run") == "day"


def keeps_float_rows(properties: Mapping[str, str]) -> bool:
    """Whether a view keeps the rows of groups for sums of floating-point numbers."""
    return properties.get(FLOAT_SUMS, "exact") == "rows"


@dataclass(frozen=True)
class ViewDeclaration:
    """``CREATE MATERIALIZED VIEW``.

    Attributes
    ----------
    name
        A plain identifier.
    query
        The text after ``AS``, as written, or a Python function.
    column_names, column_comments
        The column list after the name, if there is one (empty otherwise), and the comments in it.
    described_columns
        Comments on columns that the view may not have, as in dbt projects; of others they are left out.
    cluster_by, partitioned_by
        Columns, as written.
    properties
        ``TBLPROPERTIES``.
    path, line
        Where it was declared, for messages; None and 1 for one made in Python.
    """

    name: str
    query: Query
    comment: str | None = None
    cluster_by: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False
    column_names: tuple[str, ...] = ()
    column_comments: Mapping[str, str] = field(default_factory=dict)
    described_columns: Mapping[str, str] = field(default_factory=dict)
    path: str | None = None
    line: int = 1

    @property
    def refresh_policy(self) -> str:
        """``auto`` (the default), ``incremental`` or ``full``."""
        return planned_policy(self.properties)

    @property
    def is_strict(self) -> bool:
        """Whether only a full refresh by name computes all rows of the built view."""
        return declared_policy(self.properties) == STRICT

    @property
    def named_query(self) -> Query:
        """The query with its columns named as the column list says."""
        return rename_columns(self.query, self.column_names)


@dataclass(frozen=True)
class PlainView:
    """``CREATE [OR REPLACE] [TEMPORARY] VIEW``: a named query that is inlined where it is read."""

    name: str
    query: Query
    comment: str | None = None
    or_replace: bool = False
    if_not_exists: bool = False
    temporary: bool = False
    column_names: tuple[str, ...] = ()
    path: str | None = None
    line: int = 1

    @property
    def named_query(self) -> Query:
        """The query with its columns named as the column list says."""
        return rename_columns(self.query, self.column_names)


@dataclass(frozen=True)
class SourceColumn:
    """Name, type text and nullability of a declared source column.

    ``clauses`` are ``DEFAULT`` and ``GENERATED``, as written: Spark and Delta keep them.
    """

    name: str
    type_text: str
    not_null: bool = False
    comment: str | None = None
    ddl: str = ""
    clauses: str = ""


def source_column(
    name: str, type_text: str, *, not_null: bool = False, comment: str | None = None, clauses: str = ""
) -> SourceColumn:
    """A column, and the text of it in Spark's DDL."""
    ddl = f"{quoted(name)} {type_text}{' NOT NULL' if not_null else ''}{f' {clauses}' if clauses else ''}"
    if comment is not None:
        ddl += f" COMMENT {text_literal(comment)}"
    return SourceColumn(name, type_text, not_null, comment, ddl, clauses)


#: What the files of a folder can be that is a source.
FILE_FORMATS: Final = ("csv", "json", "orc", "parquet", "text")


@dataclass(frozen=True, slots=True)
class FileFolder:
    """A folder whose files are read into a source, each once, as they come.

    Attributes
    ----------
    location
        The folder, as Spark takes it.
    format, options
        As of ``USING`` and ``OPTIONS``: how Spark reads the files.
    columns
        As declared; empty where they were inferred from the files that were there.
    """

    location: str
    format: str
    options: tuple[tuple[str, str], ...] = ()
    columns: str = ""

    @property
    def digest(self) -> str:
        """Names a declaration: with another one, the files are read from the first one on."""
        return hashlib.sha256(repr((self.location, self.format, sorted(self.options), self.columns)).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class SourceDeclaration:
    """``CREATE TABLE``: a Delta table with its primary key, or a folder of files.

    The table lies in the warehouse, or at a location.

    Attributes
    ----------
    columns
        Empty where an existing table is only given a key.
    primary_key
        Empty for a source without a key.
    location
        None for a table managed in the warehouse.
    is_changelog
        Whether later rows replace earlier ones of their key.
    is_iceberg
        Whether it is an Iceberg table, in a catalog of PyIceberg (``source.table``) or the folder at ``location``.
    file_format, options
        Of the files in the folder at ``location``; None where that is a Delta table.
    table
        The name of a table in Spark's catalog (``source.table``), which says where it lies. Its ``location`` is known once a
        session has looked it up.
    may_be_here
        Whether a table of the warehouse with the source's name comes before that one.
    """

    name: str
    columns: tuple[SourceColumn, ...] = ()
    primary_key: tuple[str, ...] = ()
    location: str | None = None
    comment: str | None = None
    cluster_by: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False
    path: str | None = None
    line: int = 1
    is_changelog: bool = False
    file_format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    table: str | None = None
    may_be_here: bool = False
    is_iceberg: bool = False

    @property
    def columns_ddl(self) -> str:
        """The columns as Spark's DDL writes them, without the key, which Delta does not know."""
        return ", ".join(column.ddl for column in self.columns)

    @property
    def append_only(self) -> bool:
        """Whether the declaration promises ``delta.appendOnly``."""
        return self.properties.get("delta.appendOnly", "false").lower() == "true"

    @property
    def watermark(self) -> str | None:
        """The text of ``source.watermark``."""
        return self.properties.get("source.watermark")

    @property
    def indexes(self) -> tuple[str, ...]:
        """Columns that ``index.columns`` names, for lookups of the source by each."""
        names = (name.strip() for name in self.properties.get("index.columns", "").split(","))
        return tuple(dict.fromkeys(name for name in names if name))


@dataclass(frozen=True)
class DropStatement:
    """A statement that drops a table or view.

    ``DROP TABLE | VIEW | MATERIALIZED VIEW [IF EXISTS] name``; `kind` is one of the three in lower case.
    """

    kind: str
    name: str
    if_exists: bool = False
    path: str | None = None
    line: int = 1


@dataclass(frozen=True)
class RefreshStatement:
    """``REFRESH`` (all views: `views` is empty) or ``REFRESH VIEW a, b``."""

    views: tuple[str, ...] = ()
    path: str | None = None
    line: int = 1


@dataclass(frozen=True)
class VerifyStatement:
    """``VERIFY`` or ``VERIFY a, b``, of all rows or ``SAMPLE n`` keys.

    `views` is empty for all views.
    """

    views: tuple[str, ...] = ()
    path: str | None = None
    line: int = 1
    sample: int | None = None


@dataclass(frozen=True)
class CheckStatement:
    """``CHECK`` (all views: `views` is empty) or ``CHECK a, b``: the checks that views declare."""

    views: tuple[str, ...] = ()
    path: str | None = None
    line: int = 1


@dataclass(frozen=True)
class ExplainStatement:
    """``EXPLAIN MATERIALIZED VIEW name``."""

    name: str
    path: str | None = None
    line: int = 1


@dataclass(frozen=True)
class ExplainCreateStatement:
    """``EXPLAIN CREATE MATERIALIZED VIEW …``: says if and how it would be incremental."""

    view: ViewDeclaration
    path: str | None = None
    line: int = 1


@dataclass(frozen=True)
class OtherStatement:
    """A statement for Spark: its text, and its first keyword in upper case."""

    text: str
    keyword: str
    path: str | None = None
    line: int = 1

    @property
    def is_query(self) -> bool:
        """Whether it reads rows and changes nothing (``WITH … INSERT`` is not recognized)."""
        return self.keyword in ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "(")


Declaration: TypeAlias = (
    ViewDeclaration
    | SourceDeclaration
    | PlainView
    | DropStatement
    | RefreshStatement
    | VerifyStatement
    | CheckStatement
    | ExplainStatement
    | ExplainCreateStatement
    | OtherStatement
)


def rename_columns(query: Query, column_names: tuple[str, ...]) -> Query:
    """`query` with its output columns renamed by position.

    Unchanged without names, which only SQL has.
    """
    if not column_names or not isinstance(query, str):
        return query
    listed = ", ".join("`" + name.replace("`", "``") + "`" for name in column_names)
    return f"SELECT * FROM (\n{query}\n) AS _named({listed})"
