"""A pipeline's graph as declarations: materialized views, plain views, checks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from relstate_dagster.jobs.declare.changelogs import PLACE, is_not, newest_rows
from relstate_dagster.jobs.declare.checks import BLOCKING, CHECKS, SEVERITY
from relstate_dagster.jobs.declare.model import PlainView, SourceDeclaration, ViewDeclaration
from relstate_dagster.jobs.declare.parser import check_view_properties, parse_text
from relstate_dagster.jobs.declare.pipelines.elements import CdcFlow, Dataset, Flow, Graph, Kind
from relstate_dagster.jobs.declare.pipelines.python_files import read_python
from relstate_dagster.jobs.declare.pipelines.spec import PipelineSpec, read_spec
from relstate_dagster.jobs.declare.pipelines.sql_files import read_sql
from relstate_dagster.jobs.declare.query_function import Query, union_by_name
from relstate_dagster.jobs.declare.statements import place
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.sql_text import quoted

Declared: TypeAlias = ViewDeclaration | PlainView | SourceDeclaration

#: A file beside the pipeline's own that declares its sources.
SOURCES_FILE: Final = "relstate.sql"
_KIND: Final = "spark, delta"


@dataclass(frozen=True)
class PipelineDeclarations:
    """Declarations of a pipeline, and remarks on parts of it that are not used."""

    declared: tuple[Declared, ...]
    remarks: tuple[str, ...] = ()


def pipeline_declarations(path: Path) -> PipelineDeclarations:
    """Read a pipeline by its file.

    Raises
    ------
    DeclarationError
        A file is not to be read, or defines what is not taken here: a sink, a dataset without a flow, history of rows.
    """
    spec = read_spec(path)
    graph = Graph()
    for file in spec.files:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".sql":
            read_sql(text, file, graph)
        else:
            read_python(file, text, spec.root, graph)
    declarations = _Declarations(spec, graph)
    return PipelineDeclarations((*_sources(spec), *declarations.all()), tuple(declarations.remarks()))


def _sources(spec: PipelineSpec) -> Iterator[SourceDeclaration]:
    path = spec.root / SOURCES_FILE
    if not path.is_file() or path in spec.files:
        return
    for found in parse_text(path.read_text(encoding="utf-8"), str(path)):
        if not isinstance(found, SourceDeclaration):
            raise DeclarationError(f"{path}: this file declares the pipeline's sources, by CREATE TABLE, and nothing else.")
        yield found


class _Declarations:
    def __init__(self, spec: PipelineSpec, graph: Graph) -> None:
        self._spec, self._graph = spec, graph
        self._flows: dict[str, list[Flow]] = {}
        self._cdc_flows: dict[str, list[CdcFlow]] = {}
        names = {self._name(dataset.name, dataset.path) for dataset in graph.datasets}
        for flow in graph.flows:
            self._flows.setdefault(self._target(flow.target, flow, names), []).append(flow)
        for cdc in graph.cdc_flows:
            self._cdc_flows.setdefault(self._target(cdc.target, cdc, names), []).append(cdc)

    def all(self) -> Iterator[Declared]:
        for dataset in self._graph.datasets:
            yield from self._of(dataset)

    def remarks(self) -> Iterator[str]:
        settings = sorted({*self._spec.configuration, *self._graph.settings})
        if settings:
            yield f"pipeline: Spark settings are those of the warehouse, and not: {', '.join(settings)}"
        formats = [f"{dataset.name} ({', '.join(dataset.ignored)})" for dataset in self._graph.datasets if dataset.ignored]
        if formats:
            yield f"pipeline: tables are published as Delta, and not as declared: {', '.join(formats)}"
        own = sorted({key for dataset in self._graph.datasets for key in dataset.properties if key.startswith("pipelines.")})
        if own:
            yield f"pipeline: properties that only Spark's pipelines know are left out: {', '.join(own)}"

    def _of(self, dataset: Dataset) -> Iterator[Declared]:
        where = f"{place(dataset.path, dataset.line)}: {dataset.kind.value} {dataset.name}"
        if dataset.kind is Kind.SINK:
            raise DeclarationError(f"{where}: rows are published to Delta tables only; remove the sink and its flows.")
        name = self._name(dataset.name, dataset.path)
        flows, cdc_flows = self._flows.get(name, []), self._cdc_flows.get(name, [])
        if len(flows) + len(cdc_flows) == 0:
            raise DeclarationError(f"{where} has no flow: write an append flow or an auto CDC flow to it.")
        if cdc_flows and len(flows) + len(cdc_flows) > 1:
            raise DeclarationError(f"{where}: an auto CDC flow is the only flow of its target.")
        if cdc_flows:
            yield self._view(dataset, name, self._newest(cdc_flows[0]))
            return
        if len(flows) == 1:
            query = flows[0].query
            if dataset.kind is Kind.TEMPORARY_VIEW:
                names = dataset.column_names
                yield PlainView(name, query, dataset.comment, column_names=names, path=dataset.path, line=dataset.line)
                return
        else:
            parts = [(f"{name}__{flow.name}", flow) for flow in flows]
            for part, flow in parts:
                yield PlainView(part, flow.query, path=flow.path, line=flow.line)
            query = union_by_name([part for part, _ in parts])
        if dataset.schema is not None and dataset.kind is not Kind.TEMPORARY_VIEW:
            rows = f"{name}__rows"
            yield PlainView(rows, query, path=dataset.path, line=dataset.line)
            query = _with_schema(rows, dataset.schema, where)
        yield self._view(dataset, name, query)

    def _view(self, dataset: Dataset, name: str, query: Query) -> ViewDeclaration:
        properties = {key: text for key, text in dataset.properties.items() if not key.startswith("pipelines.")}
        for check, (condition, fails) in dataset.expectations.items():
            called = re.sub(r"\W", "_", check)
            option = {f"{CHECKS}{called}.{BLOCKING}": "true"} if fails else {f"{CHECKS}{called}.{SEVERITY}": "warn"}
            properties |= {f"{CHECKS}{called}.expect": condition, **option}
        properties.setdefault("dagster.kinds", _KIND)
        return check_view_properties(
            ViewDeclaration(
                name,
                query,
                dataset.comment,
                dataset.cluster_by,
                dataset.partitioned_by,
                properties,
                column_names=dataset.column_names,
                column_comments=dataset.column_comments,
                path=dataset.path,
                line=dataset.line,
            )
        )

    def _newest(self, flow: CdcFlow) -> str:
        """The newest row of each key, unless it is deleted, as of an upsert source."""
        source = quoted(self._name(flow.source, flow.path))
        shown = ", ".join(map(quoted, flow.columns)) or f"* EXCEPT ({', '.join([*map(quoted, flow.left_out), PLACE])})"
        return newest_rows(source, map(quoted, flow.keys), flow.order, shown, is_not(flow.deleted) if flow.deleted else "")

    def _target(self, name: str, flow: Flow | CdcFlow, known: set[str]) -> str:
        found = self._name(name, flow.path)
        if found not in known:
            raise DeclarationError(
                f"{place(flow.path, flow.line)}: a flow writes to {name}, which the pipeline does not define: create it by "
                "create_streaming_table"
            )
        return found

    def _name(self, name: str, path: str) -> str:
        """The name of a dataset here, without the catalog and database of the pipeline."""
        plain = name.replace("`", "")
        for qualifier in self._spec.qualifiers:
            if plain.lower().startswith(f"{qualifier}."):
                return plain[len(qualifier) + 1 :]
        if "." in plain:
            raise DeclarationError(
                f"{path}: {name} is in another database than the pipeline's: a warehouse has names of one part, so leave its "
                "database out"
            )
        return plain


def _with_schema(rows: str, schema: str, where: str) -> str:
    """The rows of a plain view with the columns of a schema, by name."""
    columns = parse_text(f"CREATE TABLE {rows} ({schema})", where)
    assert isinstance(columns[0], SourceDeclaration)
    listed = ", ".join(f"CAST({quoted(c.name)} AS {c.type_text}) AS {quoted(c.name)}" for c in columns[0].columns)
    return f"SELECT {listed} FROM {quoted(rows)}"
