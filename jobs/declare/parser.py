"""Reading one statement: a recursive-descent parser for the DDL of views and sources.

The grammar is the one of Spark Declarative Pipelines, ``CREATE MATERIALIZED VIEW [IF NOT EXISTS] name [(columns)]
[clauses] AS query``, with the clauses that Spark's own parser takes. Queries are not parsed here, only cut out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from relstate_dagster.jobs.declare.catalog_tables import TABLE, table_parts, with_catalog_table
from relstate_dagster.jobs.declare.changelogs import check_source_properties
from relstate_dagster.jobs.declare.checks import BLOCKING, CHECKS, SEVERITY, checks_of
from relstate_dagster.jobs.declare.clauses import read_clauses
from relstate_dagster.jobs.declare.file_folders import check_file_folder, with_required_key
from relstate_dagster.jobs.declare.iceberg_tables import check_iceberg_table
from relstate_dagster.jobs.declare.kept_rows import EXTREME_ROWS, SPARE_ROWS, WINDOW_ROWS
from relstate_dagster.jobs.declare.model import (
    FLOAT_SUMS,
    FLOAT_SUMS_KEPT,
    ON_CHANGE,
    OURS,
    PUBLISH_ON_CHANGE,
    PUBLISH_TABLE,
    REFRESH_POLICIES,
    REFRESH_TIME,
    REFRESH_TIMES,
    VIEW_PROPERTIES,
    CheckStatement,
    Declaration,
    DropStatement,
    ExplainCreateStatement,
    ExplainStatement,
    OtherStatement,
    PlainView,
    RefreshStatement,
    SourceDeclaration,
    VerifyStatement,
    ViewDeclaration,
    declared_policy,
)
from relstate_dagster.jobs.declare.names import as_declared, check_name
from relstate_dagster.jobs.declare.source_columns import ListedColumns, check_clauses, refuse_duplicates, table_columns
from relstate_dagster.jobs.declare.state_ttl import ttl_of
from relstate_dagster.jobs.declare.statements import Cursor, Statement, split_statements
from relstate_dagster.jobs.declare.table_properties import table_properties
from relstate_dagster.state_lib.errors import DeclarationError

#: Clauses of other products that Spark's parser refuses, and what is said instead.
_REFUSED_VIEW_CLAUSES: Final = {
    "REFRESH POLICY": "write TBLPROPERTIES ('refresh.policy' = 'auto') with auto, incremental or full",
    "REFRESH": "write TBLPROPERTIES ('refresh.policy' = 'auto') with auto, incremental or full",
    "SCHEDULE": "use a Dagster schedule or sensor; options go in TBLPROPERTIES ('dagster.group' = '…')",
    "TRIGGER": "use a Dagster sensor; options go in TBLPROPERTIES ('dagster.group' = '…')",
    "CONSTRAINT": "an expectation stands in the column list, (CONSTRAINT c EXPECT (condition)), or among the properties, "
    "TBLPROPERTIES ('check.c.expect' = 'condition')",
    "WITH": "options go in TBLPROPERTIES ('refresh.policy' = 'auto', 'dagster.group' = '…')",
    "OPTIONS": "options go in TBLPROPERTIES ('refresh.policy' = 'auto', 'dagster.group' = '…')",
    "LOCATION": "a view lives in its warehouse; drop the clause",
}


def parse_text(text: str, path: str | None = None) -> list[Declaration]:
    """Read every statement of a script."""
    return [parse_statement(statement) for statement in split_statements(text, path)]


def parse_statement(statement: Statement) -> Declaration:
    """Read one statement.

    Raises
    ------
    DeclarationError
        It is a statement of ours with a clause, a name or an option that is not allowed; says which, where, and what
        to write instead.
    """
    cursor = Cursor(statement)
    for words, parse in _STATEMENTS:
        if cursor.accept(*words):
            found = parse(cursor)
            if found is None:
                break
            if not cursor.at_end:
                raise cursor.error(f"unexpected {cursor.found()} after the end of the statement.")
            return found
    return OtherStatement(statement.text, Cursor(statement).peek().split(" ")[0], statement.path, statement.line)


# ---------------------------------------------------------------------------------------------- materialized views


def _create_materialized_view(cursor: Cursor) -> ViewDeclaration:
    statement = cursor.statement
    if_not_exists = cursor.accept("IF NOT EXISTS")
    name = _name(cursor, "view")
    context = f"materialized view {name}"
    expected: dict[str, str] = {}
    column_names, column_comments = _column_list(cursor, context, expected)
    clauses = read_clauses(cursor, context, _REFUSED_VIEW_CLAUSES, until="AS")
    if clauses.location is not None:
        raise cursor.error(f"{context}: LOCATION is not taken: {_REFUSED_VIEW_CLAUSES['LOCATION']}.")
    query = _query(cursor, context)
    twice = next((key for key in expected if key in clauses.properties), None)
    if twice is not None:
        raise DeclarationError(f"{statement.where}: {context}: {twice!r} stands in the column list and in TBLPROPERTIES.")
    properties = {**expected, **clauses.properties}
    _check_view_properties(properties, f"{statement.where}: {context}")
    return ViewDeclaration(
        name=name,
        query=query,
        comment=clauses.comment,
        cluster_by=clauses.cluster_by,
        partitioned_by=clauses.partitioned_by,
        properties=properties,
        if_not_exists=if_not_exists,
        column_names=column_names,
        column_comments=column_comments,
        path=statement.path,
        line=statement.line,
    )


def _refuse_or_replace(cursor: Cursor) -> Declaration:
    raise DeclarationError(
        f"{cursor.statement.where}: Spark's parser refuses OR REPLACE and OR REFRESH of a materialized view: write CREATE "
        "MATERIALIZED VIEW [IF NOT EXISTS]. A view whose query has changed is rebuilt automatically. Options go in "
        "TBLPROPERTIES ('refresh.policy' = 'auto')."
    )


def check_view_properties(view: ViewDeclaration) -> ViewDeclaration:
    """Return `view` if its name and options are allowed; for those made in Python.

    Raises
    ------
    DeclarationError
        A name or option is not allowed.
    """
    check_name(view.name, "view")
    _check_view_properties(view.properties, f"materialized view {view.name}")
    return view


def _check_view_properties(properties: dict[str, str] | object, where: str) -> None:
    assert isinstance(properties, dict)
    policy = declared_policy(properties)
    if policy not in REFRESH_POLICIES:
        raise DeclarationError(
            f"{where}: 'refresh.policy' = {policy!r} is unknown; it is one of {', '.join(map(repr, REFRESH_POLICIES))}."
        )
    for key, allowed in ((REFRESH_TIME, REFRESH_TIMES), (PUBLISH_ON_CHANGE, ON_CHANGE), (FLOAT_SUMS, FLOAT_SUMS_KEPT)):
        value = properties.get(key, allowed[0])
        if value not in allowed:
            raise DeclarationError(f"{where}: '{key}' = {value!r} is unknown; it is one of {', '.join(allowed)}.")
    table = properties.get(PUBLISH_TABLE)
    # A name alone may be that of a temporary view of a session.
    if table is not None and len(table_parts(table, where, PUBLISH_TABLE)) < 2:
        raise DeclarationError(f"{where}: '{PUBLISH_TABLE}' = {table!r} has no database; write database.table.")
    for rows in (EXTREME_ROWS, SPARE_ROWS, WINDOW_ROWS):
        rows.of(properties, where)
    ttl_of(properties, where)
    for key in properties:
        if key.startswith(OURS) and not key.startswith(CHECKS) and key not in VIEW_PROPERTIES:
            raise DeclarationError(
                f"{where}: property {key!r} is unknown; there are {', '.join(VIEW_PROPERTIES)}, and {CHECKS}<name>.<kind>."
            )
    checks_of(properties, where)
    table_properties(properties, where)


def _column_list(
    cursor: Cursor, context: str, expected: dict[str, str] | None = None
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Read names and comments; constraints are put into `expected`, as properties, where they are taken."""
    names: list[str] = []
    comments: dict[str, str] = {}
    if not cursor.at("("):
        return (), comments
    for column in cursor.group(context):
        if column.at("CONSTRAINT"):
            if expected is None:
                raise column.error(f"{context}: CONSTRAINT is taken on materialized views only.")
            _constraint(column, context, expected)
            continue
        name = column.identifier(f"{context}, column list")
        if column.accept("COMMENT"):
            comments[name] = column.string(f"{context}, comment of {name}")
        if not column.at_end:
            raise column.error(f"{context}: the column list holds names and comments only, found {column.found()}.")
        names.append(name)
    refuse_duplicates(names, cursor, f"{context}, column list")
    return tuple(names), comments


def _constraint(part: Cursor, context: str, expected: dict[str, str]) -> None:
    """Read ``CONSTRAINT name EXPECT (condition) [ON VIOLATION FAIL UPDATE]`` as properties."""
    part.accept("CONSTRAINT")
    name = part.identifier(f"{context}, constraint")
    context = f"{context}, constraint {name}"
    part.expect("EXPECT", context)
    start = part.index
    if not part.group(context):
        raise part.error(f"{context}: EXPECT needs a condition in parentheses.")
    condition = part.statement.script[part.tokens[start].end + 1 : part.tokens[part.index - 1].start].strip()
    options = {SEVERITY: "warn"}
    if part.accept("ON VIOLATION"):
        if part.accept("DROP ROW"):
            raise part.error(
                f"{context}: ON VIOLATION DROP ROW is not taken: a view holds what its query returns. Write the condition into "
                "the query's WHERE, or take ON VIOLATION FAIL UPDATE."
            )
        if not part.accept("FAIL UPDATE"):
            raise part.error(f"{context}: after ON VIOLATION comes FAIL UPDATE, found {part.found()}.")
        options = {BLOCKING: "true"}
    if not part.at_end:
        raise part.error(f"{context}: unexpected {part.found()} after the condition.")
    properties = {f"{CHECKS}{name}.expect": condition, **{f"{CHECKS}{name}.{key}": text for key, text in options.items()}}
    if next(iter(properties)) in expected:
        raise part.error(f"{context}: it stands twice.")
    expected |= properties


# ---------------------------------------------------------------------------------------------------- plain views


def _create_plain_view(*, or_replace: bool = False, temporary: bool = False) -> Callable[[Cursor], PlainView]:
    def parse(cursor: Cursor) -> PlainView:
        statement = cursor.statement
        if_not_exists = cursor.accept("IF NOT EXISTS")
        name = _name(cursor, "view")
        context = f"view {name}"
        column_names, _ = _column_list(cursor, context)
        clauses = read_clauses(cursor, context, {}, until="AS")
        return PlainView(
            name=name,
            query=_query(cursor, context),
            comment=clauses.comment,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
            temporary=temporary,
            column_names=column_names,
            path=statement.path,
            line=statement.line,
        )

    return parse


# -------------------------------------------------------------------------------------------------------- sources


def _create_table(cursor: Cursor) -> SourceDeclaration:
    statement = cursor.statement
    if_not_exists = cursor.accept("IF NOT EXISTS")
    name = _name(cursor, "source")
    context = f"table {name}"
    listed = table_columns(cursor, context) if cursor.at("(") else ListedColumns()
    columns, primary_key = listed.columns, listed.primary_key
    clauses = read_clauses(cursor, context, {}, until="", takes_files=True)
    if not columns and clauses.location is None and TABLE not in clauses.properties:
        raise DeclarationError(
            f"{statement.where}: {context} has neither columns nor a LOCATION: list its columns, or name the folder of an "
            "existing Delta table. CREATE TABLE AS SELECT and LIKE are not supported: create the table, then INSERT."
        )
    known = {column.name.lower() for column in columns}
    missing = [column for column in primary_key if known and column.lower() not in known]
    if missing:
        raise DeclarationError(
            f"{statement.where}: {context}: PRIMARY KEY names {', '.join(missing)}, which the table does not have; "
            f"its columns are {', '.join(column.name for column in columns)}."
        )
    source = SourceDeclaration(
        name=name,
        columns=tuple(columns),
        primary_key=tuple(as_declared(name, [column.name for column in columns]) for name in primary_key),
        location=clauses.location,
        comment=clauses.comment,
        cluster_by=clauses.cluster_by,
        partitioned_by=clauses.partitioned_by,
        properties={**listed.properties, **clauses.properties},
        if_not_exists=if_not_exists,
        path=statement.path,
        line=statement.line,
        file_format=clauses.file_format,
        is_iceberg=clauses.is_iceberg,
        options=clauses.options,
    )
    where = f"{statement.where}: {context}"
    source = with_catalog_table(source, where)
    check_iceberg_table(source, where)
    check_file_folder(source, where)
    check_source_properties(source, where)
    check_clauses(source, where)
    return with_required_key(source)


def _refuse_replace_table(cursor: Cursor) -> Declaration:
    raise DeclarationError(
        f"{cursor.statement.where}: OR REPLACE is not taken on a table that views may read: write CREATE TABLE IF NOT "
        "EXISTS, or DROP TABLE first."
    )


# ----------------------------------------------------------------------------------------------- other statements


def _drop(kind: str) -> Callable[[Cursor], DropStatement]:
    def parse(cursor: Cursor) -> DropStatement:
        if_exists = cursor.accept("IF EXISTS")
        name = _name(cursor, kind)
        return DropStatement(kind, name, if_exists, cursor.statement.path, cursor.statement.line)

    return parse


def _refresh(cursor: Cursor) -> RefreshStatement | None:
    statement = cursor.statement
    if cursor.at_end:
        return RefreshStatement((), statement.path, statement.line)
    if any(cursor.at(word) for word in ("TABLE", "FUNCTION")) or not cursor.peek():
        return None  # these, and REFRESH 'path', are Spark's
    _ = cursor.accept("VIEW") or cursor.accept("MATERIALIZED VIEW")
    return RefreshStatement(_names(cursor), statement.path, statement.line)


def _verify(cursor: Cursor) -> VerifyStatement:
    statement = cursor.statement
    _ = cursor.accept("VIEW") or cursor.accept("MATERIALIZED VIEW")
    of_all = cursor.at_end or (cursor.at("SAMPLE") and cursor.peek(1).isdigit())
    names = () if of_all else _names(cursor)
    sample = None
    if cursor.accept("SAMPLE"):
        if not cursor.peek().isdigit() or not int(cursor.peek()):
            raise cursor.error(f"VERIFY … SAMPLE needs a number of keys, found {cursor.found()}.")
        sample = int(cursor.peek())
        cursor.index += 1
    return VerifyStatement(names, statement.path, statement.line, sample)


def _check(cursor: Cursor) -> CheckStatement:
    statement = cursor.statement
    _ = cursor.accept("VIEW") or cursor.accept("MATERIALIZED VIEW")
    return CheckStatement(() if cursor.at_end else _names(cursor), statement.path, statement.line)


def _explain_view(cursor: Cursor) -> ExplainStatement:
    return ExplainStatement(_name(cursor, "view"), cursor.statement.path, cursor.statement.line)


def _explain_create(cursor: Cursor) -> ExplainCreateStatement:
    return ExplainCreateStatement(_create_materialized_view(cursor), cursor.statement.path, cursor.statement.line)


_STATEMENTS: Final[tuple[tuple[tuple[str, ...], Callable[[Cursor], Declaration | None]], ...]] = (
    (("CREATE MATERIALIZED VIEW",), _create_materialized_view),
    (("CREATE OR REPLACE MATERIALIZED VIEW",), _refuse_or_replace),
    (("CREATE OR REFRESH",), _refuse_or_replace),
    (("CREATE VIEW",), _create_plain_view()),
    (("CREATE OR REPLACE VIEW",), _create_plain_view(or_replace=True)),
    (("CREATE TEMP VIEW",), _create_plain_view(temporary=True)),
    (("CREATE TEMPORARY VIEW",), _create_plain_view(temporary=True)),
    (("CREATE OR REPLACE TEMP VIEW",), _create_plain_view(or_replace=True, temporary=True)),
    (("CREATE OR REPLACE TEMPORARY VIEW",), _create_plain_view(or_replace=True, temporary=True)),
    (("CREATE TABLE",), _create_table),
    (("CREATE OR REPLACE TABLE",), _refuse_replace_table),
    (("REPLACE TABLE",), _refuse_replace_table),
    (("DROP TABLE",), _drop("table")),
    (("DROP VIEW",), _drop("view")),
    (("DROP MATERIALIZED VIEW",), _drop("materialized view")),
    (("EXPLAIN MATERIALIZED VIEW",), _explain_view),
    (("EXPLAIN CREATE MATERIALIZED VIEW",), _explain_create),
    (("EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW",), _refuse_or_replace),
    (("REFRESH",), _refresh),
    (("VERIFY",), _verify),
    (("CHECK",), _check),
)


# -------------------------------------------------------------------------------------------------- shared pieces


def _query(cursor: Cursor, context: str) -> str:
    cursor.expect("AS", context)
    if cursor.at_end:
        raise cursor.error(f"{context}: there is no query after AS.")
    return cursor.rest()


def _name(cursor: Cursor, what: str) -> str:
    """Read the name of a view or source.

    One with a dot or a dash is read whole, so that messages show it.
    """
    where = cursor.where
    first = cursor.current
    if first is None or not cursor.peek():
        return check_name(cursor.identifier(f"name of a {what}"), what, where)
    last = first
    cursor.index += 1
    while (token := cursor.current) is not None and token.start == last.end + 1 and cursor.peek() not in ("(", ","):
        last = token
        cursor.index += 1
    name = first.text if last is first else cursor.statement.script[first.start : last.end + 1]
    return check_name(name, what, where)


def _names(cursor: Cursor) -> tuple[str, ...]:
    names = [_name(cursor, "view")]
    while cursor.accept(","):
        names.append(_name(cursor, "view"))
    return tuple(names)
