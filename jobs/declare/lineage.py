"""Lineage of a query by sqlglot, without a JVM: tables, and columns of columns.

Dagster loads definitions often and in short-lived processes; Catalyst, which has the last word on a query, would cost
each of them the start of a JVM.
"""

from __future__ import annotations

from collections.abc import Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import Node, lineage
from sqlglot.schema import MappingSchema

from relstate_dagster.jobs.declare.table_tokens import in_parts, tables_by_tokens

#: Table name → column name → type, as text.
Schemas = Mapping[str, Mapping[str, str]]
#: Output column → the (table, column) pairs that it is computed from.
ColumnLineage = dict[str, tuple[tuple[str, str], ...]]


def dependencies(query: str, where: str = "query") -> tuple[str, ...]:
    """Names of the tables and views that a query reads, in order of appearance.

    What sqlglot cannot parse is read by its tokens alone: Spark, which may take it, has the last word once there is a session.

    Parameters
    ----------
    query
        Spark SQL.
    where
        File and line, for messages.

    Raises
    ------
    DeclarationError
        A table is read by path or by a name in several parts.
    """
    try:
        tree = sqlglot.parse_one(query, dialect="spark")
    except (SqlglotError, RecursionError):
        return tables_by_tokens(query, where)
    if not isinstance(tree, exp.Query):
        return tables_by_tokens(query, where)
    names: dict[str, str] = {}
    for table in tree.find_all(exp.Table, bfs=False):
        if not isinstance(table.this, exp.Identifier):
            continue  # a table function: range(10)
        if table.db:
            raise in_parts(table.sql(dialect="spark"), where)
        if not _is_cte(table):
            names.setdefault(table.name.lower(), table.name)
    return tuple(names.values())


def output_columns(query: str) -> tuple[str, ...]:
    """Names of a query's output columns.

    Empty if a ``*`` or an unparsable query hides them.
    """
    try:
        tree = sqlglot.parse_one(query, dialect="spark")
    except (SqlglotError, RecursionError):
        return ()
    if not isinstance(tree, exp.Query) or tree.is_star:
        return ()
    return tuple(tree.named_selects)


def column_lineage(query: str, schemas: Schemas) -> ColumnLineage:
    """Source columns of each output column, by table.

    Best effort, for people to look at: empty where sqlglot cannot resolve the query. Column names are in lower case.

    Parameters
    ----------
    query
        Spark SQL.
    schemas
        Columns of the tables it reads; needed for ``*`` and for columns without a table's name before a join.
    """
    try:
        schema = MappingSchema({name: dict(columns) for name, columns in schemas.items()}, dialect="spark")
        nodes = lineage(None, query, schema, dialect="spark", trim_selects=False)
    except (SqlglotError, ValueError, RecursionError):
        return {}
    return {column: _leaves(node) for column, node in nodes.items() if column != "*"}


def _leaves(root: Node) -> tuple[tuple[str, str], ...]:
    leaves: dict[tuple[str, str], None] = {}
    for node in root.walk():
        if not node.downstream and isinstance(node.expression, exp.Table) and "." in node.name:
            leaves[node.expression.name, node.name.rsplit(".", 1)[1].strip('`"')] = None
    # Sorted: sqlglot walks a set, whose order is another one in each process.
    return tuple(sorted(leaves))


def _is_cte(table: exp.Table) -> bool:
    """Whether a name is defined by a WITH around it.

    Inside a WITH only earlier names count, unless it is recursive.
    """
    name = table.name.lower()
    child: exp.Expr = table
    while (parent := child.parent) is not None:
        if isinstance(parent, exp.With):
            before = parent.expressions if parent.args.get("recursive") else parent.expressions[: child.index]
            if any(cte.alias.lower() == name for cte in before):
                return True
            child = parent.parent or parent  # the query that owns this WITH was just looked at
            continue
        with_ = parent.args.get("with_")
        if with_ is not None and any(cte.alias.lower() == name for cte in with_.expressions):
            return True
        child = parent
    return False
