"""SQL files of a pipeline: views, streaming tables and flows."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from relstate_dagster.jobs.declare.clauses import read_clauses
from relstate_dagster.jobs.declare.model import PlainView, ViewDeclaration
from relstate_dagster.jobs.declare.parser import parse_statement
from relstate_dagster.jobs.declare.pipelines.elements import Dataset, Flow, Graph, Kind
from relstate_dagster.jobs.declare.pipelines.spec import check_settings
from relstate_dagster.jobs.declare.query_function import Query
from relstate_dagster.jobs.declare.statements import Cursor, Statement, split_statements
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.sql_text import quoted

_BEFORE_A_TABLE: Final = frozenset({"FROM", "JOIN", ","})


def read_sql(text: str, path: Path, graph: Graph) -> None:
    """Add what a SQL file defines to a graph.

    Raises
    ------
    DeclarationError
        A statement is none of a pipeline, or is not taken here; names it.
    """
    for statement in split_statements(text, str(path)):
        cursor = Cursor(statement)
        if cursor.accept("CREATE STREAMING TABLE"):
            _streaming_table(cursor, graph)
        elif cursor.accept("CREATE FLOW"):
            _flow(cursor, graph)
        elif cursor.accept("SET"):
            key, _, value = statement.text[3:].partition("=")
            check_settings({key.strip(): value.strip()}, statement.where)
            graph.settings[key.strip()] = value.strip()
        else:
            _view(statement, graph)


def _view(statement: Statement, graph: Graph) -> None:
    found = parse_statement(statement)
    where, line = str(statement.path), statement.line
    if isinstance(found, ViewDeclaration):
        graph.datasets.append(
            Dataset(
                Kind.MATERIALIZED_VIEW,
                found.name,
                where,
                line,
                found.comment,
                found.properties,
                found.cluster_by,
                found.partitioned_by,
                column_names=found.column_names,
                column_comments=found.column_comments,
            )
        )
    elif isinstance(found, PlainView):
        graph.datasets.append(
            Dataset(Kind.TEMPORARY_VIEW, found.name, where, line, found.comment, column_names=found.column_names)
        )
    else:
        raise DeclarationError(
            f"{statement.where}: a pipeline defines materialized views, temporary views, streaming tables and flows, and not "
            f"{' '.join(statement.text.split()[:3])}"
        )
    graph.flows.append(Flow(found.name, found.name, without_stream(found.query, where), where, line))


def _streaming_table(cursor: Cursor, graph: Graph) -> None:
    statement = cursor.statement
    cursor.accept("IF NOT EXISTS")
    name = cursor.identifier("streaming table")
    context, schema = f"streaming table {name}", None
    if cursor.at("("):
        start = cursor.index
        cursor.group(context)
        schema = statement.script[cursor.tokens[start].end + 1 : cursor.tokens[cursor.index - 1].start].strip()
    clauses = read_clauses(cursor, context, {}, until="AS")
    graph.datasets.append(
        Dataset(
            Kind.STREAMING_TABLE,
            name,
            str(statement.path),
            statement.line,
            clauses.comment,
            clauses.properties,
            clauses.cluster_by,
            clauses.partitioned_by,
            schema=schema,
        )
    )
    if cursor.accept("AS"):
        query = without_stream(cursor.rest(), str(statement.path))
        graph.flows.append(Flow(name, name, query, str(statement.path), statement.line))


def _flow(cursor: Cursor, graph: Graph) -> None:
    statement = cursor.statement
    name = cursor.identifier("flow")
    context = f"flow {name}"
    if cursor.accept("COMMENT"):
        cursor.string(context)
    cursor.expect("AS", context)
    if not cursor.accept("INSERT INTO"):
        raise cursor.error(f"{context}: a flow is written as INSERT INTO target BY NAME query, found {cursor.found()}.")
    target = cursor.identifier(f"{context}, target")
    cursor.accept("BY NAME")
    query = without_stream(cursor.rest(), str(statement.path))
    graph.flows.append(Flow(name, target, query, str(statement.path), statement.line))


def without_stream(query: Query, path: str) -> Query:
    """A query that reads tables in place of streams: ``STREAM t``, ``STREAM(t)``."""
    if not isinstance(query, str) or "stream" not in query.lower():
        return query
    (statement,) = split_statements(query, path)
    cursor, kept, end, before = Cursor(statement), "", 0, ""
    while (token := cursor.current) is not None:
        word = cursor.peek()
        if word == "STREAM" and before in _BEFORE_A_TABLE and cursor.index + 1 < len(cursor.tokens):
            cursor.index += 1
            is_called = cursor.accept("(")
            name = cursor.identifier("STREAM")
            if is_called:
                cursor.expect(")", f"STREAM({name}")
            kept += f"{statement.script[end : token.start]}{quoted(name)}"
            end, before = cursor.tokens[cursor.index - 1].end + 1, ""
            continue
        before = word.split(" ")[-1]
        cursor.index += 1
    return kept + statement.script[end : statement.tokens[-1].end + 1]
