"""Declared views and sources: read from SQL text or made in Python, with no JVM."""

from relstate_dagster.jobs.declare.lineage import column_lineage, dependencies, output_columns
from relstate_dagster.jobs.declare.model import (
    CheckStatement,
    Declaration,
    DropStatement,
    ExplainCreateStatement,
    ExplainStatement,
    OtherStatement,
    PlainView,
    RefreshStatement,
    SourceColumn,
    SourceDeclaration,
    VerifyStatement,
    ViewDeclaration,
)
from relstate_dagster.jobs.declare.names import check_name
from relstate_dagster.jobs.declare.parser import parse_statement, parse_text
from relstate_dagster.jobs.declare.project import Project, build_project, load_project
from relstate_dagster.jobs.declare.python_views import materialized_view
from relstate_dagster.jobs.declare.statements import Statement, normalized_sql, split_statements

__all__ = [
    "CheckStatement",
    "Declaration",
    "DropStatement",
    "ExplainCreateStatement",
    "ExplainStatement",
    "OtherStatement",
    "PlainView",
    "Project",
    "RefreshStatement",
    "SourceColumn",
    "SourceDeclaration",
    "Statement",
    "VerifyStatement",
    "ViewDeclaration",
    "build_project",
    "check_name",
    "column_lineage",
    "dependencies",
    "load_project",
    "materialized_view",
    "normalized_sql",
    "output_columns",
    "parse_statement",
    "parse_text",
    "split_statements",
]
