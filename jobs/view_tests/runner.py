"""Runs tests of views: an epoch for each step, then a comparison of the view.

Sources begin empty, so that the rows that are given come in as a change as well. After each epoch the view has to have the rows
that are expected, and those that its query gives when run in full.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare import Project
from relstate_dagster.jobs.declare.view_tests import Change, Row, Step, ViewTest
from relstate_dagster.jobs.engine.instants import utc_now
from relstate_dagster.jobs.engine.spark_connect import new_session, set_all
from relstate_dagster.jobs.inspect.verify import compared_bags, published_rows
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.registration.sync import sync_project
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.view_epoch.error_messages import ends_the_run, reason_of
from relstate_dagster.jobs.view_epoch.shown_rows import NO_ROWS, ShownRows
from relstate_dagster.jobs.view_tests.inputs import TestInputs, TestProject
from relstate_dagster.jobs.view_tests.rows import columns_named, condition, values_query
from relstate_dagster.state_lib.errors import DeclarationError, RelstateError
from relstate_dagster.state_lib.lake.address import table_reference
from relstate_dagster.state_lib.sql_text import quoted

#: Settings of the session that changes tables and compares: to plan a stage again, or to generate code, takes longer than to
#: run it. Epochs have sessions of their own.
_FOR_FEW_ROWS: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
#: How many rows of a difference are shown.
_SHOWN_ROWS: Final = 20


@dataclass(frozen=True, slots=True)
class CaseReport:
    """One test that was run.

    Parameters
    ----------
    epochs : how many were run.
    strategy : of the view, ``incremental`` or ``full``.
    problem : why the test failed; ``None`` where it passed.
    step : of the failure: 0 is what is given.
    missing, unexpected : some of the rows that the view should have, and that it should not.
    """

    test: ViewTest
    epochs: int
    seconds: float
    strategy: str = ""
    problem: str | None = None
    step: int | None = None
    missing: ShownRows = NO_ROWS
    unexpected: ShownRows = NO_ROWS

    @property
    def passed(self) -> bool:
        """Whether the view had the rows that were expected, at every step."""
        return self.problem is None


class ViewTestRunner:
    """Runs tests of the views of a project, in one Spark.

    Parameters
    ----------
    home : the warehouse that has the tables of sources whose columns no declaration says; nothing is written to it.
    """

    def __init__(self, spark: SparkSession, project: Project, home: Warehouse, functions: str | None = None) -> None:
        self._spark, self._functions = new_session(spark), functions
        set_all(self._spark, _FOR_FEW_ROWS)
        self._project = TestProject(spark, project, home, functions)

    def run(self, tests: Sequence[ViewTest]) -> Iterator[CaseReport]:
        """Run tests, one after the other; one that fails does not stop the others."""
        for test in tests:
            with tempfile.TemporaryDirectory(prefix="relstate-test-", ignore_cleanup_errors=True) as folder:
                case = _Case(self._spark, Warehouse(folder, self._functions), test)
                yield case.run(self._project)


class _Failed(Exception):
    """The view has other rows than it should have."""

    def __init__(self, problem: str, missing: ShownRows = NO_ROWS, unexpected: ShownRows = NO_ROWS) -> None:
        super().__init__(problem)
        self.missing, self.unexpected = missing, unexpected


class _Case:
    """One test and its warehouse."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse, test: ViewTest) -> None:
        self._spark, self._warehouse, self._test = spark, warehouse, test
        self._now: datetime | None = None
        self._runner = EpochRunner(spark, warehouse, clock=lambda: self._now or utc_now())
        self._epochs = 0

    def run(self, project: TestProject) -> CaseReport:
        started, step, strategy = time.perf_counter(), None, ""
        problem, failed = None, _Failed("")
        try:
            inputs = project.inputs(self._test.view, self._test.tables)
            strategy = self._declare(inputs)
            self._now = self._test.steps[0].now
            self._epoch()
            for step, step_taken in enumerate(self._test.steps):  # noqa: B007 - a failure says where it was
                self._take(step_taken, inputs)
            step = None
        except _Failed as found:
            problem, failed = str(found), found
        except RelstateError as error:
            problem = str(error)
        except (PySparkException, Py4JJavaError, OSError) as error:
            if ends_the_run(error) is not None:
                raise
            problem = reason_of(error)
        seconds = time.perf_counter() - started
        return CaseReport(self._test, self._epochs, seconds, strategy, problem, step, failed.missing, failed.unexpected)

    def _declare(self, inputs: TestInputs) -> str:
        sync_project(self._spark, self._warehouse, inputs.project)

        def as_planned(state: CatalogState) -> CatalogState:
            """Views that have an incremental form keep it, however small they are."""
            found = dict(state.views)
            for name, view in state.views.items():
                # A view of a day is computed in full when the date changes, which no other policy does.
                if view.strategy == "incremental" and not view.plan.is_of_a_day:
                    found[name] = replace(view, properties={**view.properties, "refresh.policy": "incremental"})
            return replace(state, views=found)

        return self._warehouse.catalog.update(as_planned).views[self._test.view].strategy

    def _epoch(self) -> None:
        list(self._runner.run())
        self._epochs += 1

    def _take(self, step: Step, inputs: TestInputs) -> None:
        for change in step.changes:
            try:
                self._write(change, inputs)
            except PySparkException as error:
                raise DeclarationError(f"{change.kind} of {change.table}: {reason_of(error)}") from error
        self._now = step.now or self._now
        self._epoch()
        if step.expect is not None:
            self._compare(step.expect)
        (report,) = self._runner.verify([self._test.view])
        if report.is_error:
            message = report.problem or _said(report.missing_rows, report.unexpected_rows)
            raise _Failed(
                f"the view is not what its query gives when run in full: {message}", report.missing, report.unexpected
            )

    def _compare(self, expect: Sequence[Row]) -> None:
        state = self._warehouse.read()
        view = state.views[self._test.view]
        rows = published_rows(self._spark, self._warehouse, state, view)
        columns = columns_named(rows.schema, expect, f"view {view.name}") if expect else rows.columns
        expected = self._spark.sql(values_query(rows.schema, expect, columns))
        found = compared_bags(expected, rows.select(*columns_of(columns)), _SHOWN_ROWS)
        if found.missing or found.unexpected:
            raise _Failed(
                f"the view has other rows than expected: {_said(found.missing, found.unexpected)}",
                ShownRows(tuple(columns), found.missing_rows),
                ShownRows(tuple(columns), found.unexpected_rows),
            )

    # -- changes of tables ----------------------------------------------------------------------------------------

    def _write(self, change: Change, inputs: TestInputs) -> None:
        name = inputs.table(change.table)
        path = self._warehouse.source_path(name)
        if not change.rows:
            return
        schema = self._spark.read.format("delta").load(path).schema
        columns = columns_named(schema, change.rows, name)
        table = table_reference(path)
        if change.kind == "insert":
            self._spark.sql(f"INSERT INTO {table} {values_query(schema, change.rows, [f.name for f in schema.fields])}")
        elif change.kind == "delete":
            conditions = [condition(schema, row, columns_named(schema, [row], name)) for row in change.rows]
            self._check_met(table, name, change, conditions)
            self._spark.sql(f"DELETE FROM {table} WHERE {' OR '.join(f'({each})' for each in conditions)}")
        else:
            key = inputs.tables[name]
            lower = {column.lower() for column in columns}
            if not key or not {column.lower() for column in key} <= lower:
                message = f"the columns of its key, {', '.join(key)}" if key else "no key; write delete and insert instead"
                raise DeclarationError(f"update of {name}: each row names its new values and {message}")
            self._check_met(table, name, change, [condition(schema, row, key) for row in change.rows])
            for row in change.rows:
                self._update(table, row, schema, columns_named(schema, [row], name), key)

    def _update(self, table: str, row: Row, schema: T.StructType, columns: Sequence[str], key: Sequence[str]) -> None:
        of_key = {column.lower() for column in key}
        same = " AND ".join(f"t.{quoted(column)} <=> s.{quoted(column)}" for column in key)
        assigned = ", ".join(f"t.{quoted(column)} = s.{quoted(column)}" for column in columns if column.lower() not in of_key)
        if assigned:
            values = values_query(schema, [row], columns)
            self._spark.sql(f"MERGE INTO {table} t USING ({values}) s ON {same} WHEN MATCHED THEN UPDATE SET {assigned}")

    def _check_met(self, table: str, name: str, change: Change, conditions: Sequence[str]) -> None:
        """Refuse a change of a missing row.

        The test would be of something else than it says.
        """
        counts = ", ".join(f"count_if({each})" for each in conditions)
        found = self._spark.sql(f"SELECT {counts} FROM {table}").collect()[0]
        missed = [dict(row) for row, count in zip(change.rows, found, strict=True) if not count]
        if missed:
            raise DeclarationError(f"{change.kind} of {name}: there is no row {missed[0]}")


def _said(missing: int, unexpected: int) -> str:
    return f"{missing:,} missing, {unexpected:,} unexpected"
