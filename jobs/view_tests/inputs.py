"""The part of a project that a test needs.

The view, its inputs, and tables in place of upstream views.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare import Project, SourceColumn, SourceDeclaration, ViewDeclaration, build_project
from relstate_dagster.jobs.declare.catalog_tables import TABLE
from relstate_dagster.jobs.declare.checks import CHECKS
from relstate_dagster.jobs.declare.model import source_column
from relstate_dagster.jobs.declare.project import Declared
from relstate_dagster.jobs.registration.sync import located, source_entry, sync_project
from relstate_dagster.jobs.sources.file_layout import struct_of
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.sql_text import quoted

#: A name that Delta takes only where files call their columns otherwise.
_ODD_NAME: Final = re.compile(r"`[^`]*[ ,;{}()\n\t=][^`]*`")


@dataclass(frozen=True, slots=True)
class TestInputs:
    """Declarations in a test's warehouse.

    Parameters
    ----------
    tables : by name, the columns that tell rows of a table apart; none where nothing does.
    """

    __test__ = False

    project: Project
    tables: Mapping[str, tuple[str, ...]]

    def table(self, name: str) -> str:
        """One of the tables, by its name in any case."""
        return next(table for table in self.tables if table.lower() == name.lower())


class TestProject:
    """A project whose views are tested.

    Parameters
    ----------
    home : the warehouse that has the tables of sources whose columns no declaration says.
    """

    __test__ = False

    def __init__(self, spark: SparkSession, project: Project, home: Warehouse, functions: str | None) -> None:
        self._spark, self._project, self._home, self._functions = spark, project, home, functions
        self._stand_ins: dict[str, tuple[SourceDeclaration, tuple[str, ...]]] = {}

    def inputs(self, view: str, given: Iterable[str]) -> TestInputs:
        """Inputs of a view; upstream views with given rows are tables.

        Raises
        ------
        DeclarationError : the view reads no such table, or the columns of a source are not known.
        """
        lower = {name.lower() for name in given}
        views = {declared.name: declared for declared in self._project.views}
        plain = {declared.name: declared for declared in self._project.plain_views}
        declared: dict[str, Declared] = {}
        keys: dict[str, tuple[str, ...]] = {}

        def visit(name: str) -> None:
            if name in declared:
                return
            if name in views and name.lower() in lower and name != view:
                declared[name], keys[name] = self._stand_in(name)
            elif name in views or name in plain:
                declared[name] = _untouched(views[name]) if name in views else plain[name]
                for read in self._project.reads[name]:
                    visit(read)
            else:
                source = self._source(name)
                declared[name], keys[name] = source, source.primary_key

        visit(view)
        for name in given:
            if name.lower() not in {table.lower() for table in keys}:
                # Views that it reads can be given as well, in place of what they read.
                known = ", ".join([*keys, *(other for other in declared if other in views and other != view)]) or "nothing"
                raise DeclarationError(f"view {view} reads no {name} in this test; rows can be given of {known}")
        return TestInputs(build_project(declared.values()), keys)

    def _source(self, name: str) -> SourceDeclaration:
        source = next((s for s in self._project.sources if s.name == name), SourceDeclaration(name))
        if source.columns:
            return _made_here(source)
        entry = source_entry(self._home, located(self._spark, self._home, source))
        opened = self._home.source(entry)
        if not opened.exists():
            raise DeclarationError(
                f"the columns of {name} are not known: declare them, CREATE TABLE {name} (…), or name the warehouse that has "
                "it (--warehouse)"
            )
        fields = struct_of(opened.facts().schema_json).fields
        columns = [(field.name, field.dataType.simpleString()) for field in fields]
        return _made_here(replace(source, columns=_columns(columns)))

    def _stand_in(self, name: str) -> tuple[SourceDeclaration, tuple[str, ...]]:
        """A table with a view's columns and its key."""
        if name not in self._stand_ins:
            inputs = self.inputs(name, ())
            with tempfile.TemporaryDirectory(prefix="relstate-test-") as folder:
                entry = sync_project(self._spark, Warehouse(folder, self._functions), inputs.project).views[name]
            plan = entry.plan
            columns = _columns([(o.name, plan.field_named(o.column).data_type) for o in plan.output])
            shown = {o.column: o.name for o in plan.output}
            key = tuple(shown[c] for c in plan.stream_key or () if c in shown)
            is_whole = bool(plan.stream_key) and len(key) == len(plan.stream_key or ())
            self._stand_ins[name] = _made_here(SourceDeclaration(name, columns)), key if is_whole else ()
        return self._stand_ins[name]


def _made_here(source: SourceDeclaration) -> SourceDeclaration:
    """A source whose table is made in the test's warehouse."""
    defaults = {"delta.columnMapping.mode": "name"} if _ODD_NAME.search(source.columns_ddl) else {}
    if source.file_format is not None and not source.primary_key:
        defaults["delta.appendOnly"] = "true"
    # Rows are given whole: nothing generates their values, and a test may have any.
    columns = tuple(source_column(c.name, c.type_text, not_null=c.not_null) if c.clauses else c for c in source.columns)
    kept = {key: text for key, text in source.properties.items() if key != TABLE and not key.startswith("delta.constraints.")}
    here = replace(source, location=None, table=None, file_format=None, is_iceberg=False, options={})
    return replace(here, columns=columns, properties={**defaults, **kept})


def _untouched(view: ViewDeclaration) -> ViewDeclaration:
    """A view without its checks.

    They may be about tables that the test does not have.
    """
    return replace(view, properties={key: text for key, text in view.properties.items() if not key.startswith(CHECKS)})


def _columns(columns: Sequence[tuple[str, str]]) -> tuple[SourceColumn, ...]:
    return tuple(SourceColumn(name, data_type, ddl=f"{quoted(name)} {data_type}") for name, data_type in columns)
