"""Python files of a pipeline.

They are read without running them where their text says all, and run where it does not.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

from relstate_dagster.jobs.declare.pipelines.elements import CdcFlow, Dataset, Flow, Graph, Kind
from relstate_dagster.jobs.declare.pipelines.expectations import EXPECTATIONS, REFUSED_EXPECTATIONS, expectations_of
from relstate_dagster.jobs.declare.pipelines.spec import check_settings
from relstate_dagster.jobs.declare.python_views import running_file
from relstate_dagster.jobs.declare.query_function import PythonFile, full_name
from relstate_dagster.jobs.declare.statements import place
from relstate_dagster.state_lib.errors import DeclarationError

_MODULE: Final = "pyspark.pipelines"
_KINDS: Final = {
    "materialized_view": Kind.MATERIALIZED_VIEW,
    "table": Kind.STREAMING_TABLE,
    "temporary_view": Kind.TEMPORARY_VIEW,
}
#: Calls that stand by themselves.
_CALLS: Final = ("create_streaming_table", "create_auto_cdc_flow", "create_sink")
_DATASET_KEYWORDS: Final = frozenset(
    {"name", "comment", "spark_conf", "table_properties", "partition_cols", "cluster_by", "schema", "format"}
)
_COLUMN_CALLS: Final = ("pyspark.sql.functions.col", "pyspark.sql.functions.column", "pyspark.sql.functions.expr")


class _Unclear(Exception):
    """The text of a file does not say what it defines."""


def read_python(path: Path, text: str, root: Path, graph: Graph) -> None:
    """Add what a Python file defines to a graph.

    Raises
    ------
    DeclarationError
        The file is not Python, fails as it runs, or defines what is not taken here.
    """
    file = PythonFile(path, text, root)
    try:
        found = _Reader(file).read()
    except _Unclear:
        found = _run(file)
    graph.datasets += found.datasets
    graph.flows += found.flows
    graph.cdc_flows += found.cdc_flows


class _Reader:
    """Reads the text of a file."""

    def __init__(self, file: PythonFile) -> None:
        self._file = file
        self._imported = file.imported(_MODULE, "pyspark.sql.functions")
        self._graph = Graph()
        self._used = 0

    def read(self) -> Graph:
        for statement in self._file.tree.body:
            if isinstance(statement, ast.FunctionDef):
                self._function(statement)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self._call(statement.value)
        names = (self._ours(node) for node in ast.walk(self._file.tree) if isinstance(node, (ast.Name, ast.Attribute)))
        if sum(bool(name) for name in names) != self._used:
            raise _Unclear
        return self._graph

    def _ours(self, expression: ast.expr) -> str:
        """The name of what an expression is in Spark's module; empty for anything else."""
        full = full_name(expression, self._imported)
        return full.removeprefix(f"{_MODULE}.") if full.startswith(f"{_MODULE}.") else ""

    def _function(self, function: ast.FunctionDef) -> None:
        ours = [(self._ours(decorator), decorator) for decorator in function.decorator_list]
        if not any(name for name, _ in ours):
            return
        if not all(name for name, _ in ours):
            raise _Unclear
        self._used += len(ours)
        expected: dict[str, tuple[str, bool]] = {}
        path, line = str(self._file.path), function.lineno
        for name, decorator in reversed(ours):
            arguments, keywords = self._arguments(decorator)
            if name in (*EXPECTATIONS, *REFUSED_EXPECTATIONS):
                expected |= expectations_of(name, tuple(arguments), place(path, line))
                continue
            if arguments:
                raise _Unclear
            called = str(keywords.get("name") or function.name)
            if name in _KINDS:
                comment = ast.get_docstring(function)
                self._graph.datasets.append(dataset_of(_KINDS[name], called, keywords, path, line, expected, comment))
                target = called
            elif name == "append_flow":
                target = str(keywords.get("target"))
                check_settings(keywords.get("spark_conf") or {}, place(path, line))
            else:
                raise _Unclear
            self._graph.flows.append(Flow(called, target, self._file.query_of(function, called), path, line))

    def _call(self, call: ast.Call) -> None:
        name = self._ours(call)
        if name not in _CALLS:
            return
        self._used += 1
        arguments, keywords = self._arguments(call)
        path, line = str(self._file.path), call.lineno
        if name == "create_auto_cdc_flow":
            order = ("target", "source", "keys", "sequence_by", "apply_as_deletes", "column_list", "except_column_list")
            keywords = {**dict(zip(order, arguments, strict=False)), **keywords}
            self._graph.cdc_flows.append(cdc_flow_of(keywords, path, line))
        else:
            keywords = {**dict(zip(("name",), arguments, strict=False)), **keywords}
            kind = Kind.SINK if name == "create_sink" else Kind.STREAMING_TABLE
            self._graph.datasets.append(dataset_of(kind, str(keywords.get("name")), keywords, path, line, {}, None))

    def _arguments(self, call: ast.expr) -> tuple[list[Any], dict[str, Any]]:
        if not isinstance(call, ast.Call):
            return [], {}
        if any(keyword.arg is None for keyword in call.keywords):
            raise _Unclear
        return [self._value(a) for a in call.args], {str(k.arg): self._value(k.value) for k in call.keywords}

    def _value(self, expression: ast.expr) -> Any:
        """A literal, or the text of a column: ``col("id")``, ``expr("op = 'd'")``."""
        if isinstance(expression, ast.Call) and full_name(expression, self._imported) in _COLUMN_CALLS:
            if len(expression.args) == 1 and not expression.keywords:
                return self._value(expression.args[0])
            raise _Unclear
        if isinstance(expression, ast.List):
            return [self._value(element) for element in expression.elts]
        try:
            return ast.literal_eval(expression)
        except ValueError as error:
            raise _Unclear from error


class _NoSession:
    """The ``spark`` of a file that runs while its project is loaded."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __getattr__(self, name: str) -> NoReturn:
        raise DeclarationError(
            f"{self._path}: spark.{name} is asked for while the project is loaded, without a Spark session: use spark within "
            "the functions of datasets and flows"
        )


def _run(file: PythonFile) -> Graph:
    """Run a file, and take what Spark's decorators registered."""
    from relstate_dagster.jobs.declare.pipelines.registry import EXPECTED, registering  # noqa: PLC0415 - imports PySpark

    graph, path = Graph(), str(file.path)
    with registering() as registry, running_file(file.path, file.root, spark=_NoSession(file.path)):
        pass
    expected = {flow.target: getattr(flow.func, EXPECTED, {}) for flow in registry.flows}
    documented = {flow.target: flow.func.__doc__ for flow in registry.flows if flow.name == flow.target}
    for output in registry.outputs:
        kind = next(kind for name, kind in _OUTPUTS.items() if type(output).__name__ == name)
        keywords = {name: getattr(output, name, None) for name in _DATASET_KEYWORDS}
        line = output.source_code_location.line_number or 1
        graph.datasets.append(
            dataset_of(kind, output.name, keywords, path, line, expected.get(output.name, {}), documented.get(output.name))
        )
    for flow in registry.flows:
        check_settings(flow.spark_conf, f"{path}: {flow.name}")
        line = flow.source_code_location.line_number or 1
        graph.flows.append(Flow(flow.name, flow.target, file.whole(flow.name), path, line))
    for arguments in registry.cdc_flows:
        line = int(arguments.pop("line"))
        graph.cdc_flows.append(cdc_flow_of({name: _texts(value, path) for name, value in arguments.items()}, path, line))
    return graph


_OUTPUTS: Final = {
    "MaterializedView": Kind.MATERIALIZED_VIEW,
    "StreamingTable": Kind.STREAMING_TABLE,
    "TemporaryView": Kind.TEMPORARY_VIEW,
    "Sink": Kind.SINK,
}


def _texts(value: Any, path: str) -> Any:
    """Columns of Spark Connect as the SQL that they stand for."""
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, list):
        return [_texts(element, path) for element in value]
    inner: Any = getattr(value, "_expr", None)
    text = getattr(inner, "_unparsed_identifier", None) or (
        getattr(inner, "_expr", None) if type(inner).__name__ == "SQLExpression" else None
    )
    if not isinstance(text, str):
        raise DeclarationError(f"{path}: create_auto_cdc_flow: {value}: write this column as SQL text, as in \"op = 'd'\".")
    return text


def dataset_of(
    kind: Kind,
    name: str,
    keywords: dict[str, Any],
    path: str,
    line: int,
    expected: dict[str, tuple[str, bool]],
    comment: str | None,
) -> Dataset:
    """A dataset by the arguments of a decorator.

    Raises
    ------
    DeclarationError
        An argument is unknown, or changes what queries mean.
    """
    where = f"{place(path, line)}: {kind.value} {name}"
    unknown = [key for key in keywords if key not in _DATASET_KEYWORDS] if kind is not Kind.SINK else []
    if unknown:
        raise DeclarationError(f"{where}: the argument {', '.join(unknown)} is not taken.")
    check_settings(keywords.get("spark_conf") or {}, where)
    schema, file_format = keywords.get("schema"), keywords.get("format")
    ignored = [f"format {file_format}"] if file_format not in (None, "delta") and kind is not Kind.SINK else []
    return Dataset(
        kind,
        name,
        path,
        line,
        keywords.get("comment") or comment,
        {str(key): str(text) for key, text in (keywords.get("table_properties") or {}).items()},
        tuple(keywords.get("cluster_by") or ()),
        tuple(keywords.get("partition_cols") or ()),
        schema=None if schema is None else _schema_text(schema),
        expectations=expected,
        ignored=tuple(ignored),
    )


def _schema_text(schema: Any) -> str:
    """A schema as Spark's DDL."""
    if isinstance(schema, str):
        return schema
    to_ddl: Callable[[], str] | None = getattr(schema, "toDDL", None)
    if to_ddl is not None:
        return to_ddl()
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)


def cdc_flow_of(keywords: dict[str, Any], path: str, line: int) -> CdcFlow:
    """An auto CDC flow by the arguments of its call.

    Raises
    ------
    DeclarationError
        An argument is missing or unknown, or the history of rows is asked for.
    """
    where = f"{place(path, line)}: create_auto_cdc_flow"
    known = {"target", "source", "keys", "sequence_by", "apply_as_deletes", "column_list", "except_column_list"}
    known |= {"name", "stored_as_scd_type"}
    unknown = [key for key in keywords if key not in known]
    missing = [key for key in ("target", "source", "keys", "sequence_by") if not keywords.get(key)]
    if unknown or missing:
        problem = f"does not take {', '.join(unknown)}" if unknown else f"needs {', '.join(missing)}"
        raise DeclarationError(f"{where} {problem}.")
    if str(keywords.get("stored_as_scd_type") or 1) != "1":
        raise DeclarationError(f"{where}: stored_as_scd_type = 2 is not taken: only the newest rows are kept, as type 1.")
    return CdcFlow(
        str(keywords["target"]),
        str(keywords["source"]),
        tuple(map(str, _listed(keywords["keys"]))),
        str(keywords["sequence_by"]),
        keywords.get("apply_as_deletes"),
        tuple(map(str, keywords.get("column_list") or ())),
        tuple(map(str, keywords.get("except_column_list") or ())),
        path,
        line,
    )


def _listed(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, (list, tuple)) else [value]
