"""Views declared in Python: by SQL, or by a function that returns a DataFrame."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast, overload

from relstate_dagster.jobs.declare.model import ViewDeclaration
from relstate_dagster.jobs.declare.parser import check_view_properties
from relstate_dagster.jobs.declare.query_function import (
    PythonFile,
    Query,
    QueryFunction,
    full_name,
    literal_arguments,
    python_files,
)
from relstate_dagster.state_lib.errors import DeclarationError, first_line

_DECORATOR: Final = "materialized_view"
#: Full names of the decorator.
_OURS: Final = tuple(f"relstate_dagster{module}.{_DECORATOR}" for module in ("", ".jobs.declare", ".jobs.declare.python_views"))
_KEYWORDS: Final = frozenset({"name", "comment", "cluster_by", "partition_by", "properties", "reads"})
_RUNNING: Final = threading.RLock()


@dataclass(slots=True)
class DeclaredInFile:
    """Views and functions that a Python file declares as it runs."""

    root: Path
    views: list[ViewDeclaration] = field(default_factory=list)
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)


_running: ContextVar[DeclaredInFile | None] = ContextVar("declared_in_file", default=None)
#: Functions without a file, by the name and digest of the query: of notebooks and consoles.
FUNCTIONS_HERE: Final[dict[tuple[str, str], Callable[..., Any]]] = {}


@overload
def materialized_view(function: Callable[..., Any], /) -> ViewDeclaration: ...
@overload
def materialized_view(
    *,
    query: str,
    name: str,
    comment: str | None = None,
    cluster_by: Iterable[str] = (),
    partition_by: Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
) -> ViewDeclaration: ...
@overload
def materialized_view(
    *,
    query: None = None,
    name: str | None = None,
    comment: str | None = None,
    cluster_by: Iterable[str] = (),
    partition_by: Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
    reads: Iterable[str] | None = None,
) -> Callable[[Callable[..., Any]], ViewDeclaration]: ...


def materialized_view(
    function: Callable[..., Any] | None = None,
    /,
    *,
    query: str | None = None,
    name: str | None = None,
    comment: str | None = None,
    cluster_by: Iterable[str] = (),
    partition_by: Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
    reads: Iterable[str] | None = None,
) -> ViewDeclaration | Callable[[Callable[..., Any]], ViewDeclaration]:
    """Declare a materialized view, from SQL or from a function.

    A function that takes a Spark session returns a DataFrame; it is called when the view is planned. One without parameters
    returns SQL, and is called at once.

    Parameters
    ----------
    query
        The query; without it, the call is a decorator.
    name
        The view's name; a decorated function's own name by default.
    comment
        What the view is; a decorated function's docstring by default.
    cluster_by, partition_by, properties
        As ``CLUSTER BY``, ``PARTITIONED BY`` and ``TBLPROPERTIES``.
    reads
        Sources and views that a function of a session reads, where its text does not show them.

    Raises
    ------
    DeclarationError
        The name or a property is not allowed.

    Examples
    --------
    >>> busy = materialized_view(name="busy", query="SELECT origin, count(*) AS flights FROM flights GROUP BY origin")
    >>> @materialized_view(properties={"refresh.policy": "incremental"})
    ... def carriers() -> str:
    ...     "Airlines that fly."
    ...     return "SELECT DISTINCT carrier FROM flights"
    >>> carriers.name, carriers.comment
    ('carriers', 'Airlines that fly.')
    >>> @materialized_view
    ... def delays(spark):
    ...     return spark.table("flights").groupBy("carrier").avg("dep_delay")
    >>> delays.name
    'delays'
    """

    def declare(found_query: Query, found_name: str, found_comment: str | None, path: str | None, line: int) -> ViewDeclaration:
        return check_view_properties(
            ViewDeclaration(
                name=name or found_name,
                query=inspect.cleandoc(found_query) if isinstance(found_query, str) else found_query,
                comment=comment or found_comment,
                cluster_by=tuple(cluster_by),
                partitioned_by=tuple(partition_by),
                properties=dict(properties or {}),
                path=path,
                line=line,
            )
        )

    def decorate(decorated: Callable[..., Any]) -> ViewDeclaration:
        code, known_as = decorated.__code__, name or decorated.__name__
        collected = _running.get()
        found: Query
        if takes_session(decorated):
            found = _query_of(decorated, known_as, reads, None if collected is None else collected.root)
        else:
            found = decorated()
            if not isinstance(found, str):
                raise DeclarationError(
                    f"{code.co_filename}:{code.co_firstlineno}: view {known_as}: a function without parameters returns SQL; "
                    "one that returns a DataFrame takes the Spark session as its parameter."
                )
        view = declare(found, known_as, inspect.getdoc(decorated), code.co_filename, code.co_firstlineno)
        if collected is not None:
            collected.views.append(view)
            collected.functions[view.name] = decorated
        return view

    if function is not None:
        return decorate(function)
    if query is None:
        return decorate
    view = declare(query, name or "", None, None, 1)
    if (collected := _running.get()) is not None:
        collected.views.append(view)
    return view


def takes_session(function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter without a default: the Spark session."""
    return any(parameter.default is inspect.Parameter.empty for parameter in inspect.signature(function).parameters.values())


def _query_of(function: Callable[..., Any], name: str, reads: Iterable[str] | None, root: Path | None) -> QueryFunction:
    """The query of a function that was defined by running code."""
    code = function.__code__
    path = Path(code.co_filename)
    if path.is_file():
        file = PythonFile(path, path.read_text(encoding="utf-8"), root or path.parent)
        static = _declared_plainly(file)
        node = next((plain.function for plain in static or () if plain.name == name), None)
        return file.whole(name, reads) if node is None else file.query_of(node, name, reads)
    return query_here(function, name, reads)


def query_here(function: Callable[..., Any], name: str, reads: Iterable[str] | None = None) -> QueryFunction:
    """The query of a function that this process alone can call, as of a notebook."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        source = ""
    digest = hashlib.sha256(_pickled(function)).hexdigest()[:16]
    FUNCTIONS_HERE[name, digest] = function
    return QueryFunction(name, "", digest, None if reads is None else tuple(reads), "", source)


def _pickled(function: Callable[..., Any]) -> bytes:
    """A function without a file as bytes, with values that it uses.

    Another one each time where those cannot be had: the view is then planned again, and its plan compared.
    """
    from pyspark import cloudpickle  # noqa: PLC0415 - such functions are of notebooks, which have it

    try:
        return bytes(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
    except Exception:
        return uuid.uuid4().bytes


@dataclass(frozen=True, slots=True)
class _Plain:
    """A function whose decorator has literal arguments alone."""

    name: str
    function: ast.FunctionDef
    arguments: dict[str, Any]


def _declared_plainly(file: PythonFile) -> list[_Plain] | None:
    """Views that a file declares by functions at its top.

    ``None`` if they are found only by running the file.
    """
    imported = file.imported(*_OURS)
    used = sum(
        isinstance(node, (ast.Name, ast.Attribute)) and full_name(node, imported) in _OURS for node in ast.walk(file.tree)
    )
    found: list[_Plain] = []
    for function in file.functions():
        ours = [d for d in function.decorator_list if full_name(d, imported) in _OURS]
        if not ours:
            continue
        arguments = literal_arguments(ours[0])
        has_session = bool(function.args.args or function.args.posonlyargs)
        if arguments is None or not has_session or len(function.decorator_list) > 1 or not set(arguments) <= _KEYWORDS:
            return None
        found.append(_Plain(str(arguments.get("name") or function.name), function, cast("dict[str, Any]", arguments)))
    return found if len(found) == used else None


def views_of_files(root: Path) -> list[ViewDeclaration]:
    """Views that Python files below a folder declare.

    Files that say all in literals are read without running them, so nothing that they import is needed. A file that runs, and
    loads its own project meanwhile, gets none.

    Raises
    ------
    DeclarationError
        A file is not Python, fails as it runs, or declares what is not allowed.
    """
    found: list[ViewDeclaration] = []
    if _running.get() is not None:
        return found
    for path, text in python_files(root, _DECORATOR, "relstate_dagster"):
        file = PythonFile(path, text, root)
        if not any(full in _OURS for full in _names_used(file)):
            continue
        plain = _declared_plainly(file)
        if plain is None:
            with running_file(path, root) as (declared, _):
                found += declared.views
            continue
        for view in plain:
            given = {**view.arguments, "name": view.name}
            reads = given.pop("reads", None)
            query = file.query_of(view.function, view.name, reads)
            comment = given.get("comment") or ast.get_docstring(view.function)
            declaration = ViewDeclaration(
                name=view.name,
                query=query,
                comment=comment,
                cluster_by=tuple(given.get("cluster_by", ())),
                partitioned_by=tuple(given.get("partition_by", ())),
                properties=dict(given.get("properties") or {}),
                path=str(path),
                line=view.function.lineno,
            )
            found.append(check_view_properties(declaration))
    return found


def _names_used(file: PythonFile) -> Iterator[str]:
    imported = file.imported(*_OURS)
    for node in ast.walk(file.tree):
        if isinstance(node, (ast.Name, ast.Attribute)):
            yield full_name(node, imported)


@contextmanager
def running_file(path: Path, root: Path, **names: Any) -> Iterator[tuple[DeclaredInFile, ModuleType]]:
    """Run a Python file, and keep its imports at hand while its functions are called.

    Modules of the project are forgotten afterwards: they may be edited before the next time.

    Parameters
    ----------
    names
        What the file finds defined, such as ``spark``.

    Raises
    ------
    DeclarationError
        The file is not there, or fails.
    """
    if not path.is_file():
        raise DeclarationError(f"{path}: there is no such file any more; put it back, or run the project from where it is now.")
    declared, before = DeclaredInFile(root), set(sys.modules)
    paths = [str(root), str(path.parent)]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise DeclarationError(f"{path}: Python cannot run this file.")
    module = importlib.util.module_from_spec(spec)
    module.__dict__.update(names)
    with _RUNNING:
        sys.path[:0] = paths
        token = _running.set(declared)
        # Kept code is known by second and size: an edit within a second would be run as it was before.
        keeps_code, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            try:
                spec.loader.exec_module(module)
            except DeclarationError:
                raise
            except Exception as error:
                raise DeclarationError(
                    f"{path}: the file fails as it runs: {type(error).__name__}: {first_line(error)}"
                ) from error
            finally:
                _running.reset(token)
            yield declared, module
        finally:
            sys.dont_write_bytecode = keeps_code
            for folder in paths:
                sys.path.remove(folder)
            for name in set(sys.modules) - before:
                file = getattr(sys.modules[name], "__file__", None)
                if file is not None and root in Path(file).parents:
                    del sys.modules[name]
