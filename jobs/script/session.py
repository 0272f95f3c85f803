"""Runs a script of statements against a warehouse, in one Spark session.

Sources are ordinary Delta tables of the session, so INSERT, UPDATE, DELETE and MERGE are Spark's own. A view is a
temporary view over its published table, as of the last complete epoch and without hidden columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.catalog.entries import SourceEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare import (
    CheckStatement,
    Declaration,
    DropStatement,
    ExplainCreateStatement,
    ExplainStatement,
    OtherStatement,
    PlainView,
    RefreshStatement,
    SourceDeclaration,
    Statement,
    VerifyStatement,
    ViewDeclaration,
    check_name,
    parse_statement,
    split_statements,
)
from relstate_dagster.jobs.declare.catalog_tables import CatalogTables
from relstate_dagster.jobs.declare.changelogs import changelog_of, expanded, is_changelog_view
from relstate_dagster.jobs.declare.names import as_declared
from relstate_dagster.jobs.engine.instants import Clock, utc_now
from relstate_dagster.jobs.engine.session import SHUFFLE_PARTITIONS, SPARKS_OWN_TASKS
from relstate_dagster.jobs.inspect.verify import published_rows
from relstate_dagster.jobs.plan.explain import explain_plan
from relstate_dagster.jobs.planner.query_frames import register_view
from relstate_dagster.jobs.registration.registry import Registry
from relstate_dagster.jobs.registration.spark_catalog import names_table
from relstate_dagster.jobs.registration.sync import declare_source, located, source_entry
from relstate_dagster.jobs.registration.view_planner import ViewPlanner
from relstate_dagster.jobs.run.ingest import ingest
from relstate_dagster.jobs.run.preview import preview_view
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.script.named import named_in
from relstate_dagster.jobs.script.strategy import explained_view, strategy_line
from relstate_dagster.jobs.script.written import check_written
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.jobs.sources.protocol import Source
from relstate_dagster.jobs.view_epoch.error_messages import ends_the_run, explained, reason_of
from relstate_dagster.jobs.view_epoch.reports import VerifyReport, ViewReport
from relstate_dagster.state_lib.errors import DeclarationError, RelstateError, StateError
from relstate_dagster.state_lib.lake.folders import is_table
from relstate_dagster.state_lib.lake.table import DeltaError
from relstate_dagster.state_lib.sql_text import text_literal

_CHANGES_SOURCES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "ALTER"})
#: Words between such a keyword and the name of the table.
_BEFORE_A_TABLE = frozenset({"into", "from", "table", "view", "overwrite", "with", "schema", "evolution"})
#: With these words begin queries, and statements that write what a query gives.
_MAY_WRITE = frozenset({"WITH", "FROM"})
_KINDS = {"table": "source", "view": "plain view", "materialized view": "view"}


_View = TypeVar("_View", ViewDeclaration, PlainView)


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a statement: rows with column names, or nothing.

    ``columns`` is then ``None``.
    """

    statement: int
    columns: tuple[str, ...] | None = None
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    is_query: bool = False


class ScriptSession:
    """Executes statements, one after the other.

    Parameters
    ----------
    spark : a session with Delta; sources and views are registered in it by their plain names.
    warehouse : where they lie.
    on_report : called with the report of each view after it was brought up to date.
    clock : gives the instants of epochs.
    runner : brings views up to date; by default one with this clock.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        on_report: Callable[[ViewReport], None] = lambda _report: None,
        clock: Clock = utc_now,
        runner: EpochRunner | None = None,
    ) -> None:
        self._spark = spark
        self._warehouse = warehouse
        if warehouse.functions is not None:
            warehouse.functions.register(spark)
        self._runner = runner or EpochRunner(spark, warehouse, clock=clock)
        self._registry = Registry(spark, warehouse, self._runner.patience)
        self._on_report = on_report
        #: What the session knows: sources with their paths, and views with what they show.
        self._tables: dict[str, str] = {}
        self._views: dict[str, object] = {}
        #: Sources whose names this session has put into the catalog; other names there are not dropped.
        self._made: set[str] = set()

    def run(self, text: str, path: str | None = None, *, first: int = 1) -> Iterator[Result | tuple[int, Exception]]:
        """Run a script, from its first statement or a later one on.

        An error is yielded as (statement number, error), and the caller decides whether to go on.
        """
        for number, statement in enumerate(split_statements(text, path), start=1):
            if number < first:
                continue
            try:
                yield self.execute(statement, number)
            except RelstateError as error:
                yield number, error
            except (PySparkException, Py4JError, DeltaError, OSError) as error:
                told = error if isinstance(error, PySparkException) else StatementFailed(reason_of(error))
                yield number, ends_the_run(error) or told

    def close(self) -> None:
        """Drop the temporary names of sources and views.

        Other sessions of the same Spark would see them.
        """
        for name in [*self._views, *self._tables]:
            self._forget(name)

    def execute(self, statement: Statement, number: int = 1) -> Result:
        """Run one statement."""
        parsed = parse_statement(statement)
        handlers: dict[type[Any], Callable[[Any, int], Result]] = {
            SourceDeclaration: self._create_table,
            ViewDeclaration: self._create_view,
            PlainView: self._create_plain_view,
            DropStatement: self._drop,
            RefreshStatement: self._refresh,
            ExplainStatement: self._explain,
            ExplainCreateStatement: self._explain_create,
            VerifyStatement: self._verify,
            CheckStatement: self._check,
            OtherStatement: self._other,
        }
        return handlers[type(parsed)](parsed, number)

    # -- declarations ---------------------------------------------------------------------------------------------

    def _create_table(self, source: SourceDeclaration, number: int) -> Result:
        check_name(source.name, "table")
        state = self._registry.swept()
        if self._exists(state, source.name):
            if source.if_not_exists:
                return Result(number)
            raise DeclarationError(f"there is a table or view named {source.name} already; drop it first")
        if not source.columns and source.location is None and source.table is None and not source.is_iceberg:
            raise DeclarationError(f"table {source.name} has no columns")
        table, view = expanded(source)
        if view is not None and self._exists(state, table.name):
            raise DeclarationError(f"there is a table or view named {table.name} already, which is what the changes are called")
        declared = declare_source(self._spark, self._warehouse, self._registry, table)
        try:
            entry = declared.sources[table.name]
            if entry.folder is not None:
                ingest(self._spark, entry, self._warehouse.source(entry))
            if view is not None:
                self._create_view(view, number)
        except Exception:
            if table.name in self._state().sources:
                self._registry.drop(table.name, "source")
            raise
        return Result(number)

    def _create_view(self, view: ViewDeclaration, number: int) -> Result:
        if view.if_not_exists and self._exists(self._state(), view.name):
            return Result(number)
        self._registry.add_view(self._with_sources(view))
        try:
            self._run_views([view.name])
        except Exception:
            # A view that could not be backfilled was never there.
            self._registry.drop(view.name, "view")
            raise
        return Result(number)

    def _create_plain_view(self, view: PlainView, number: int) -> Result:
        if view.if_not_exists and self._exists(self._state(), view.name):
            return Result(number)
        view = self._with_sources(view)
        self._registry.add_plain_view(view.name, view.named_query, replace_existing=view.or_replace)
        return Result(number)

    def _with_sources(self, view: _View) -> _View:
        """A view over sources in place of tables of Spark's catalog, which are registered."""
        view, found = _over_sources(self._state(), view)
        for source in found:
            declare_source(self._spark, self._warehouse, self._registry, source)
        return view

    def _drop(self, drop: DropStatement, number: int) -> Result:
        kind = _KINDS[drop.kind]
        state = self._state()
        there = {"source": {*state.sources, *_changelogs(state)}, "plain view": state.plain_views, "view": state.views}[kind]
        name = as_declared(drop.name, there)
        if drop.if_exists and name not in there:
            return Result(number)
        self._registry.drop(name, kind)
        self._forget(name)
        return Result(number)

    # -- epochs ---------------------------------------------------------------------------------------------------

    def _refresh(self, refresh: RefreshStatement, number: int) -> Result:
        self._run_views(list(refresh.views) or None)
        return Result(number)

    def _run_views(self, views: list[str] | None) -> None:
        for report in self._runner.run(views):
            self._on_report(report)

    def _verify(self, verify: VerifyStatement, number: int) -> Result:
        reports = self._runner.verify(list(verify.views) or None, sample=verify.sample)
        rows = [(r.view, r.equal, r.missing_rows, r.unexpected_rows, r.epoch) for r in reports]
        different = [r for r in reports if r.is_error]
        result = Result(number, ("view", "equal", "missing_rows", "unexpected_rows", "epoch"), list(rows), is_query=True)
        if different:
            raise VerificationFailed("; ".join(map(_difference, different)))
        return result

    def _check(self, check: CheckStatement, number: int) -> Result:
        reports = self._runner.check(list(check.views) or None)
        failed = [r for r in reports if r.is_error]
        if failed:
            raise CheckFailed("; ".join(f"{r.view}: check {r.check.name} fails: {r.problem or r.found}" for r in failed))
        rows = [(r.view, r.check.name, r.passed, r.check.severity, r.found, r.failing, r.epoch) for r in reports]
        columns = ("view", "check", "passed", "severity", "found", "failing_rows", "epoch")
        return Result(number, columns, list(rows), is_query=True)

    # -- explain --------------------------------------------------------------------------------------------------

    def _explain(self, explain: ExplainStatement, number: int) -> Result:
        state = self._state()
        view = state.view(explain.name)
        most_tasks = int(self._spark.conf.get(SHUFFLE_PARTITIONS) or SPARKS_OWN_TASKS)
        following = preview_view(self._warehouse, state, view, most_tasks=most_tasks)
        text = explained_view(view, following.lines, state.sources)
        return Result(number, ("plan",), [(text,)], is_query=True)

    def _explain_create(self, explain: ExplainCreateStatement, number: int) -> Result:
        state = self._state()
        view, found = _over_sources(state, explain.view)
        for source in found:
            state = state.with_source(source_entry(self._warehouse, located(self._spark, self._warehouse, source)))
        entry = ViewPlanner(self._spark, self._warehouse).plan(state, view)
        text = f"{strategy_line(entry)}\n{explain_plan(entry.plan)}"
        return Result(number, ("plan",), [(text,)], is_query=True)

    # -- everything else is Spark's -------------------------------------------------------------------------------

    def _other(self, other: OtherStatement, number: int) -> Result:
        state = self._state()
        self._register(state, other.text)
        if other.keyword in _CHANGES_SOURCES:
            self._prepare_writing(state, other)
        if not other.is_query or other.keyword in _MAY_WRITE:
            check_written(self._spark, self._warehouse, state, other.text)
        try:
            frame = self._spark.sql(other.text)
        except PySparkException as error:
            if "DELTA_CANNOT_MODIFY_APPEND_ONLY" not in str(error):
                raise
            raise DeclarationError(_only_appended(_target(other))) from error
        if not other.is_query and not frame.columns:
            return Result(number)
        rows = [tuple(row) for row in frame.collect()]
        if other.keyword in _CHANGES_SOURCES:
            return Result(number)
        return Result(number, tuple(frame.columns), rows, is_query=True)

    def _prepare_writing(self, state: CatalogState, other: OtherStatement) -> None:
        """Refuse writes to a view.

        Under the name of a view of changes, its table is written to.
        """
        target = _target(other)
        for name, source in state.sources.items():
            names = {name.lower(), name.lower().removesuffix(changelog_of("")) if source.is_changelog else ""}
            if source.folder is not None and target in names and other.keyword == "INSERT":
                raise DeclarationError(f"the rows of {target} come from files: put one into {source.folder.location}")
            if source.is_iceberg and target in names:
                raise DeclarationError(
                    f"{target} is an Iceberg table, which is only read here: write to {source.path} elsewhere"
                )
        for name in (*state.views, *state.plain_views):
            if name.lower() != target:
                continue
            if name not in _changelogs(state):
                raise DeclarationError(f"{name} is a view: its rows follow from its query; change its sources instead")
            self._forget(name)
            self._register_source(replace(state.sources[changelog_of(name)], name=name))

    def _register(self, state: CatalogState, statement: str) -> None:
        """Register the sources and views that a statement names in the session.

        Those that earlier statements named stay known, as they are now: functions of the user may read them.

        Raises
        ------
        RelstateError : a view that the statement names cannot be read.
        """
        for name in [n for n in self._tables if n not in state.sources]:
            self._forget(name)
        for name in [n for n in self._views if n not in {*state.views, *state.plain_views, *_iceberg_tables(state)}]:
            self._forget(name)
        named = named_in(state, statement)
        for name in dict.fromkeys([*named_in(state, "", kept=[*self._tables, *self._views]), *named]):
            if name in state.sources:
                self._register_source(state.sources[name])
            elif name in state.plain_views:
                self._register_view(name, state.version, partial(self._create_temporary, state, name))
            elif (versions := state.versions_at(name)) is not None:
                try:
                    self._register_view(name, versions, partial(self._show, state, name))
                except (PySparkException, Py4JJavaError, StateError) as error:
                    self._forget(name)
                    if name in named:
                        raise explained(name, None, error) from error

    def _register_source(self, source: SourceEntry) -> None:
        if source.is_iceberg:
            opened = self._warehouse.source(source)
            pin = opened.pin(None)
            show = partial(self._show_source, opened, pin, source.name)
            self._register_view(source.name, pin.identity, show)
        elif not is_table(source.path):
            self._forget(source.name)  # Spark would make an empty table there
        elif self._tables.get(source.name) != source.path:
            self._forget(source.name)
            if not names_table(self._spark, source.name, source.path):
                # In a catalog in memory, an earlier session may have left the name.
                self._spark.sql(f"DROP TABLE IF EXISTS `{source.name}`")
                self._spark.sql(f"CREATE TABLE `{source.name}` USING delta LOCATION {text_literal(source.path)}")
                self._made.add(source.name)
            self._tables[source.name] = source.path

    def _register_view(self, name: str, shown: object, register: Callable[[], None]) -> None:
        """Register a view unless the session has its present version."""
        if self._views.get(name) != shown:
            register()
            self._views[name] = shown

    def _create_temporary(self, state: CatalogState, name: str) -> None:
        register_view(self._spark, name, state.plain_views[name].query)

    def _show(self, state: CatalogState, name: str) -> None:
        self._frame(state, name).createOrReplaceTempView(name)

    def _show_source(self, source: Source, pin: Pin, name: str) -> None:
        source.snapshot(self._spark, pin).createOrReplaceTempView(name)

    def _forget(self, name: str) -> None:
        if self._views.pop(name, None) is not None:
            self._spark.catalog.dropTempView(name)
        self._tables.pop(name, None)
        if name in self._made:
            self._made.remove(name)
            self._spark.sql(f"DROP TABLE IF EXISTS `{name}`")

    def _frame(self, state: CatalogState, name: str) -> DataFrame:
        return published_rows(self._spark, self._warehouse, state, state.views[name])

    def _state(self) -> CatalogState:
        return self._warehouse.read()

    @staticmethod
    def _exists(state: CatalogState, name: str) -> bool:
        used = {n.lower() for n in (*state.sources, *state.views, *state.plain_views)}
        return name.lower() in used


def _over_sources(state: CatalogState, view: _View) -> tuple[_View, list[SourceDeclaration]]:
    """A view over sources in place of catalog tables, and the new sources."""
    if not isinstance(view.query, str):
        return view, []
    tables = CatalogTables()
    for source in state.sources.values():
        if source.table is not None:
            tables.add(source.name, source.table, f"source {source.name}")
    return replace(view, query=tables.over_sources(view.query, view.name)), list(tables.found.values())


def _target(other: OtherStatement) -> str:
    """The name, in lower case, that a statement which changes rows begins with."""
    words = (word.strip("`").lower() for word in other.text.replace("(", " ").split()[1:])
    return next((word for word in words if word not in _BEFORE_A_TABLE), "")


def _only_appended(table: str) -> str:
    """Error message for an UPDATE or DELETE of an append-only table."""
    return (
        f"{table} is only appended to ('delta.appendOnly' = 'true'); where it holds changes, insert a newer row of the key, "
        f"which replaces others or deletes it. To remove rows for good, ALTER TABLE {table} SET TBLPROPERTIES "
        "('delta.appendOnly' = 'false'), then delete them, then rebuild the views that read it with relstate run --full-refresh"
    )


def _iceberg_tables(state: CatalogState) -> set[str]:
    """Sources that the session reads as views, since Spark cannot open them."""
    return {name for name, source in state.sources.items() if source.is_iceberg}


def _changelogs(state: CatalogState) -> set[str]:
    """Views of changes, whose names stand for their tables in writes and drops."""
    return {name for name, view in state.views.items() if is_changelog_view(view.properties)}


def _difference(report: VerifyReport) -> str:
    if report.problem is not None:
        return f"{report.view} is not verified: {report.problem}"
    return (
        f"{report.view} differs from a full recompute: it misses {report.missing_rows} rows, and has "
        f"{report.unexpected_rows} too many"
    )


class StatementFailed(RelstateError):
    """A statement that Spark, or a table or file that it reads, has let fail."""


class VerificationFailed(RelstateError):
    """A view is not what its query gives when run in full."""


class CheckFailed(RelstateError):
    """A check that a view declares fails, and is no warning."""


__all__ = ["CheckFailed", "Declaration", "Result", "ScriptSession", "VerificationFailed"]
