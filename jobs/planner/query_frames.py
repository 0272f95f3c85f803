"""A query as a DataFrame: from its SQL, or by calling its Python function.

Everything that needs a query in full asks here: planning, full recomputes, VERIFY. An epoch of an incremental view runs from
its stored plan and does not.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property, reduce, wraps
from pathlib import Path
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.declare.python_views import FUNCTIONS_HERE, running_file, takes_session
from relstate_dagster.jobs.declare.query_function import UNION, PythonFile, Query, QueryFunction
from relstate_dagster.jobs.engine.spark_connect import is_remote
from relstate_dagster.jobs.planner.frame_check import own_function
from relstate_dagster.jobs.planner.query_text import parse_query
from relstate_dagster.state_lib.errors import PlanError, RelstateError, first_line

#: Methods that run a query, by the module and class that have them: while a view is planned, its relations are empty.
_ACTIONS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("pyspark.sql.classic.dataframe", "DataFrame"): (
        *("collect", "toPandas", "toArrow", "toLocalIterator", "take", "head", "first", "tail", "count", "isEmpty", "show"),
        *("foreach", "foreachPartition", "checkpoint", "localCheckpoint", "approxQuantile", "corr", "cov", "crosstab"),
        *("randomSplit", "createTempView", "createOrReplaceTempView", "createGlobalTempView", "createOrReplaceGlobalTempView"),
        *("rdd", "write", "writeTo", "writeStream", "mergeInto", "pandas_api", "unpersist"),
        "transpose",
    ),
    ("pyspark.sql.catalog", "Catalog"): (
        *(
            "setCurrentCatalog",
            "setCurrentDatabase",
            "createTable",
            "createExternalTable",
            "dropTempView",
            "dropGlobalTempView",
        ),
        *("cacheTable", "uncacheTable", "clearCache", "refreshTable", "refreshByPath", "recoverPartitions", "registerFunction"),
    ),
    ("pyspark.sql.udf", "UDFRegistration"): ("register", "registerJavaFunction", "registerJavaUDAF"),
    ("pyspark.sql.conf", "RuntimeConfig"): ("set", "unset"),
}
_calling: ContextVar[str | None] = ContextVar("query_function", default=None)


class UnknownRelation(PlanError):
    """A query reads a table that is neither a source nor a view: ``relation``."""

    def __init__(self, message: str, relation: str) -> None:
        super().__init__(message)
        self.relation = relation


def frame_of(session: SparkSession, query: Query) -> DataFrame:
    """The rows of a query, in a session that has its relations as temporary views.

    Raises
    ------
    PlanError : the function of the query is not there or was edited, fails, runs a query itself, or returns something else.
    """
    return session.sql(query) if isinstance(query, str) else _called(session, query)


def register_view(session: SparkSession, name: str, query: Query) -> None:
    """Make a plain view known to a session."""
    if isinstance(query, str):
        session.sql(f"CREATE OR REPLACE TEMPORARY VIEW `{name}` AS {query}")
    else:
        _called(session, query).createOrReplaceTempView(name)


def _called(session: SparkSession, query: QueryFunction) -> DataFrame:
    """Call a query's function."""
    if is_remote(session):
        raise PlanError(f"{query}: a function is called in a classic Spark session; with Spark Connect, its plan alone is used")
    _guard_actions()
    with _function(session, query) as function, _active(session):
        token = _calling.set(str(query))
        try:
            found = function(session) if takes_session(function) else function()
        except AnalysisException as error:
            raise _refused(query, error) from error
        except RelstateError:
            raise
        except Exception as error:
            raise PlanError(f"{query} fails: {type(error).__name__}: {first_line(error)}") from error
        finally:
            _calling.reset(token)
    if not isinstance(found, DataFrame):
        raise PlanError(f"{query} returns {type(found).__name__}; a view's function returns a DataFrame")
    if found.isStreaming:
        raise PlanError(f"{query} returns a stream; a view is a query over sources and views: read them by spark.table(name)")
    return found


def _refused(query: QueryFunction, error: PySparkException) -> PlanError:
    message = str(error).strip().split("\n", 1)[0].split(";", 1)[0]
    if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
        name = str((error.getMessageParameters() or {}).get("relationName", "")).replace("`", "")
        return UnknownRelation(
            f"{query} reads {name!r}, which is no source or view of this warehouse: declare it (CREATE TABLE {name} USING "
            "delta LOCATION '…')",
            name,
        )
    return PlanError(f"Spark refuses {query}: {message}")


@contextmanager
def _function(session: SparkSession, query: QueryFunction) -> Iterator[Callable[..., Any]]:
    """The function of a query, as its file defines it now.

    Imports of the project work while it is called.
    """
    if query.digest == UNION:
        yield lambda spark: reduce(DataFrame.unionByName, map(spark.table, query.name.split(", ")))
        return
    here = FUNCTIONS_HERE.get((query.name, query.digest))
    if here is not None:
        yield here
        return
    if not query.path:
        raise PlanError(
            f"the {query} was defined in a notebook or console that has ended: define it again there, or put it into a file of "
            "the project"
        )
    path, root = Path(query.path), Path(query.root or Path(query.path).parent)
    _check_unedited(query, path, root)
    with _active(session), _registering(path) as flows, running_file(path, root, spark=session) as (declared, _):
        found = flows().get(query.name) or declared.functions.get(query.name)
        if found is None:
            raise PlanError(f"{path} declares no view {query.name} any more; run the project again")
        yield found


def _check_unedited(query: QueryFunction, path: Path, root: Path) -> None:
    if not path.is_file():
        raise PlanError(f"the {query} is not there: the file was moved or deleted; run the project from where it is now")
    file = PythonFile(path, path.read_text(encoding="utf-8"), root)
    if query.digest not in file.digests():
        raise PlanError(f"the {query} was edited since the view was planned; run the project, which plans it again")


@contextmanager
def _registering(path: Path) -> Iterator[Callable[[], dict[str, Callable[..., Any]]]]:
    """Functions that a file registers by Spark's own decorators, by the names of their flows."""
    if "pipelines" not in path.read_text(encoding="utf-8"):
        yield dict
        return
    module = importlib.import_module("relstate_dagster.jobs.declare.pipelines.registry")
    with module.registering() as registry:
        yield lambda: {flow.name: flow.func for flow in registry.flows}


@contextmanager
def _active(session: SparkSession) -> Iterator[None]:
    """Make a session the active one of this thread, as ``SparkSession.active()`` finds it."""
    jvm: Any = session._jvm
    before, own = SparkSession._activeSession, session._jsparkSession
    sessions = SparkSession._get_j_spark_session_class(jvm)
    before_there = sessions.getActiveSession()
    SparkSession._activeSession = session
    sessions.setActiveSession(own)
    try:
        yield
    finally:
        SparkSession._activeSession = before
        if before_there.isDefined():
            sessions.setActiveSession(before_there.get())
        else:
            sessions.clearActiveSession()


@cache
def _guard_actions() -> None:
    """Refuse, while a view's function is called, what runs a query or changes the session."""
    for (module, class_name), methods in _ACTIONS.items():
        owner = getattr(importlib.import_module(module), class_name)
        for name in methods:
            found = inspect.getattr_static(owner, name, None)
            if isinstance(found, property):
                setattr(owner, name, property(_guarded(found.fget, f"{class_name}.{name}")))  # type: ignore[arg-type]
            elif isinstance(found, cached_property):
                setattr(owner, name, property(_guarded(found.func, f"{class_name}.{name}")))
            elif callable(found):
                setattr(owner, name, _guarded(found, f"{class_name}.{name}"))
    sessions = importlib.import_module("pyspark.sql.session").SparkSession
    sessions.sql = _queries_alone(sessions.sql)
    functions = importlib.import_module("pyspark.sql.udf").UserDefinedFunction
    functions.__call__ = _without_own_functions(functions.__call__)
    sessions.readStream = property(_rows_of_streams(sessions.readStream.fget))
    grouped = importlib.import_module("pyspark.sql.group").GroupedData
    grouped.pivot = _with_values(grouped.pivot)
    frames = importlib.import_module("pyspark.sql.classic.dataframe").DataFrame
    for name in ("cache", "persist"):
        setattr(frames, name, _unchanged(getattr(frames, name)))


class _Tables:
    """``spark.readStream`` in a view's function: the rows of tables."""

    def __init__(self, session: SparkSession, query: str) -> None:
        self._session, self._query = session, query

    def option(self, *_arguments: Any, **_named: Any) -> _Tables:
        return self

    options = option

    def table(self, name: str) -> DataFrame:
        return self._session.table(name)

    def __getattr__(self, name: str) -> Any:
        raise PlanError(
            f"{self._query} calls readStream.{name}: declare the files as a source (CREATE TABLE name USING json LOCATION "
            "'…'), and read spark.readStream.table(name)"
        )


def _rows_of_streams(read_stream: Callable[[SparkSession], Any]) -> Callable[[SparkSession], Any]:
    """``readStream``, which gives the rows of tables where a view's function asks for it."""

    @wraps(read_stream)
    def called(self: SparkSession) -> Any:
        query = _calling.get()
        return read_stream(self) if query is None else _Tables(self, query)

    return called


def _guarded(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(method)
    def called(*arguments: Any, **named: Any) -> Any:
        query = _calling.get()
        if query is not None:
            raise PlanError(
                f"{query} calls {name}: a view's function describes its rows and runs nothing itself, for it is called when "
                "the view is planned, before there are rows"
            )
        return method(*arguments, **named)

    return called


def _queries_alone(sql: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    """``spark.sql``, which would run a command while a view is planned."""

    @wraps(sql)
    def called(self: SparkSession, text: str, *arguments: Any, **named: Any) -> DataFrame:
        if _calling.get() is not None:
            parse_query(self, text)
        return sql(self, text, *arguments, **named)

    return called


def _without_own_functions(call: Callable[..., Any]) -> Callable[..., Any]:
    """Calls of ``F.udf(…)``, which a plan cannot name."""

    @wraps(call)
    def called(self: Any, *arguments: Any, **named: Any) -> Any:
        query = _calling.get()
        if query is not None:
            raise PlanError(own_function(query, str(self._name)))
        return call(self, *arguments, **named)

    return called


def _with_values(pivot: Callable[..., Any]) -> Callable[..., Any]:
    """``pivot``, which looks for the values itself where they are not given."""

    @wraps(pivot)
    def called(self: Any, pivot_col: str, values: list[Any] | None = None) -> Any:
        query = _calling.get()
        if query is not None and values is None:
            raise PlanError(f"{query} calls pivot({pivot_col!r}) without values: list them, for they are the view's columns")
        return pivot(self, pivot_col, values)

    return called


def _unchanged(keep: Callable[..., Any]) -> Callable[..., Any]:
    """``cache`` and ``persist``, which say nothing about a view's rows."""

    @wraps(keep)
    def called(self: Any, *arguments: Any, **named: Any) -> Any:
        return self if _calling.get() is not None else keep(self, *arguments, **named)

    return called
