"""The checks that views declare, made by Spark on the published rows.

All that is said of single rows, of their number and of their newest value is found in one pass over the view. Keys that occur
twice, and rows without a partner, take one more each. Where rows fail, another pass fetches some of them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta, timezone
from functools import reduce
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare.checks import Check, checks_of
from relstate_dagster.jobs.engine.instants import Clock, read_clock, unix_microseconds
from relstate_dagster.jobs.engine.workloads import Workload, session_for
from relstate_dagster.jobs.inspect.verify import published_rows
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.registration.check_planner import table_of
from relstate_dagster.jobs.view_epoch.error_messages import ends_the_run, explained
from relstate_dagster.jobs.view_epoch.reports import CheckReport
from relstate_dagster.jobs.view_epoch.shown_rows import NO_ROWS, SHOWN_ROWS, Cells, ShownRows, as_texts
from relstate_dagster.state_lib.constants import VIEW_KEY
from relstate_dagster.state_lib.errors import DeclarationError, EpochError, RelstateError
from relstate_dagster.state_lib.sql_text import quoted

#: Kinds of which a pass over the view finds what is to be known, of as many as there are.
_IN_ONE_PASS: Final = ("not_null", "accepted", "expect", "rows", "fresh")
_ROWS: Final = "rows"


def declared_checks(view: ViewEntry, names: Collection[str] | None = None) -> list[Check]:
    """The checks of a view; those of some names, where they are given.

    Raises
    ------
    DeclarationError : there is no such check.
    """
    declared = checks_of(view.properties, f"view {view.name}")
    unknown = sorted(set(names or ()) - {check.name for check in declared})
    if unknown:
        known = ", ".join(check.name for check in declared) or "none"
        raise DeclarationError(f"view {view.name} has no check {', '.join(unknown)}; there are {known}")
    return [check for check in declared if names is None or check.name in names]


def check_view(
    spark: SparkSession,
    warehouse: Warehouse,
    state: CatalogState,
    view: ViewEntry,
    clock: Clock,
    names: Collection[str] | None = None,
) -> list[CheckReport]:
    """Make checks of a view on its rows as of its last epoch.

    Parameters
    ----------
    clock : gives the time that the newest values are compared with.
    names : of the checks; all by default.
    """
    checks = declared_checks(view, names)
    if not checks:
        return []
    try:
        runner = _Checks(spark, warehouse, state, view, clock)
    except RelstateError as error:
        return [CheckReport(view.name, check, False, view.last_epoch, problem=str(error)) for check in checks]
    reports = runner.in_one_pass([check for check in checks if check.kind in _IN_ONE_PASS])
    for check in checks:
        if check.kind not in _IN_ONE_PASS:
            reports[check.name] = runner.alone(check)
    return [reports[check.name] for check in checks]


class _Checks:
    """The published rows of one view, and what is found in them."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse, state: CatalogState, view: ViewEntry, clock: Clock) -> None:
        if view.last_epoch is None:
            why = f": {view.problem.reason}" if view.problem else "; run it first"
            raise EpochError(f"view {view.name} has no complete epoch{why}")
        self._warehouse, self._state, self._view, self._clock = warehouse, state, view, clock
        self._session = session_for(spark, view.settings, Workload.FULL, warehouse.functions, is_local=warehouse.is_local)
        self._rows = published_rows(self._session, warehouse, state, view, with_key=True)
        self._columns = [output.name for output in view.plan.output]

    # -- what is said of rows, their number and their newest value ------------------------------------------------

    def in_one_pass(self, checks: Sequence[Check]) -> dict[str, CheckReport]:
        """Run checks in one pass.

        A check that cannot be computed then runs by itself, so that it fails alone.
        """
        if not checks:
            return {}
        try:
            return self._made_in_one_pass(checks)
        except Exception as error:
            if ends_the_run(error) is not None:
                raise
            if len(checks) == 1:
                return {checks[0].name: self._problem(checks[0], error)}
        return {check.name: self.in_one_pass([check])[check.name] for check in checks}

    def _made_in_one_pass(self, checks: Sequence[Check]) -> dict[str, CheckReport]:
        started = time.perf_counter()
        self._check_columns(checks)
        sums = [F.count(F.lit(1)).alias(_ROWS)]
        for n, check in enumerate(checks):
            if check.condition:
                sums.append(F.count(F.when(_violated(check), F.lit(1))).alias(f"_{n}"))
            elif check.kind == "fresh":
                newest = F.max(F.col(quoted(check.columns[0])).cast("timestamp"))
                sums.append(F.unix_micros(newest).alias(f"_{n}"))
        found = self._rows.agg(*sums).collect()[0]
        failed = {n: check for n, check in enumerate(checks) if check.condition and found[f"_{n}"]}
        shown = self._failing_rows(failed) if failed else {}
        seconds = time.perf_counter() - started
        reports: dict[str, CheckReport] = {}
        for n, check in enumerate(checks):
            if check.condition:
                failing = int(found[f"_{n}"])
                message = f"{failing:,} of {found[_ROWS]:,} rows fail" if failing else f"{found[_ROWS]:,} rows"
                rows = ShownRows(tuple(self._columns), tuple(shown.get(n, ())))
                reports[check.name] = self._report(check, failing, message, rows, seconds)
            elif check.kind == "rows":
                passed = _is_within(int(found[_ROWS]), check)
                reports[check.name] = self._report(check, int(not passed), f"{found[_ROWS]:,} rows", NO_ROWS, seconds)
            else:
                passed, message = self._is_fresh(found[f"_{n}"], check)
                reports[check.name] = self._report(check, int(not passed), message, NO_ROWS, seconds)
        return reports

    def _failing_rows(self, failed: dict[int, Check]) -> dict[int, list[Cells]]:
        """Some failing rows of each check, in one pass.

        They are the same ones every time.
        """
        which = F.array_compact(F.array(*(F.when(_violated(check), F.lit(n)) for n, check in failed.items())))
        cells = F.array(*as_texts(self._rows, self._columns))
        failing = self._rows.where(reduce(Column.__or__, map(_violated, failed.values())))
        # From here on no column has a name of the view's.
        failing = failing.select(F.explode(which).alias("check"), cells.alias("cells"), F.col(quoted(VIEW_KEY)).alias("key"))
        place = F.row_number().over(Window.partitionBy("check").orderBy("key"))
        rows = failing.withColumn("place", place).where(F.col("place") <= SHOWN_ROWS)
        found: dict[int, list[Cells]] = {n: [] for n in failed}
        for row in rows.collect():
            found[row["check"]].append(tuple(row["cells"]))
        return found

    def _is_fresh(self, newest: int | None, check: Check) -> tuple[bool, str]:
        assert check.age is not None
        if newest is None:
            return False, f"there is no {check.columns[0]}"
        now = read_clock(self._clock)
        age = timedelta(microseconds=unix_microseconds(now) - newest)
        at = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=newest)
        message = f"the newest {check.columns[0]} is {at:%Y-%m-%d %H:%M:%S} UTC"
        return age <= check.age, message if age < timedelta() else f"{message}, {_rounded(age)} old"

    # -- what takes a pass of its own -----------------------------------------------------------------------------

    def alone(self, check: Check) -> CheckReport:
        """Make a check that is about several rows."""
        make = {"unique": self._unique, "references": self._references}[check.kind]
        started = time.perf_counter()
        try:
            self._check_columns([check])
            failing, message, shown = make(check)
        except Exception as error:
            if ends_the_run(error) is not None:
                raise
            return self._problem(check, error)
        return self._report(check, failing, message, shown, time.perf_counter() - started)

    def _unique(self, check: Check) -> tuple[int, str, ShownRows]:
        """Keys that occur more than once; as in SQL, NULL equals nothing."""
        names = [f"c{n}" for n in range(len(check.columns))]
        keys = self._rows.where(_all_there(check)).select(*columns_of(check.columns)).toDF(*names)
        twice = keys.groupBy(*names).agg(F.count(F.lit(1)).alias("rows")).where(F.col("rows") > 1)
        sums = twice.agg(F.count(F.lit(1)).alias("keys"), F.sum("rows").alias("rows")).collect()[0]
        if not sums["keys"]:
            return 0, "each key once", NO_ROWS
        some = (
            twice.orderBy(F.col("rows").desc()).limit(SHOWN_ROWS).select(*as_texts(twice, names), F.col("rows").cast("string"))
        )
        shown = ShownRows((*check.columns, "rows"), tuple(tuple(row) for row in some.collect()))
        return int(sums["keys"]), f"{sums['keys']:,} keys occur more than once, in {sums['rows']:,} rows", shown

    def _references(self, check: Check) -> tuple[int, str, ShownRows]:
        """Rows whose columns occur nowhere in the other table.

        Columns with a NULL among them refer to nothing.
        """
        others = self._other_rows(check).select(*columns_of(check.table_columns))
        names = [f"c{n}" for n in range(len(others.columns))]
        pairs = zip(columns_of(check.columns), names, strict=True)
        same = [F.col(f"v.{column}") == F.col(f"o.{name}") for column, name in pairs]
        there = self._rows.where(_all_there(check)).alias("v")
        alone = there.join(others.toDF(*names).alias("o"), reduce(Column.__and__, same), "left_anti")
        failing = alone.count()
        if not failing:
            return 0, f"all are in {check.table}", NO_ROWS
        some = alone.orderBy(quoted(VIEW_KEY)).limit(SHOWN_ROWS).select(*as_texts(alone, self._columns))
        shown = ShownRows(tuple(self._columns), tuple(tuple(row) for row in some.collect()))
        return failing, f"{failing:,} rows refer to nothing in {check.table}", shown

    def _other_rows(self, check: Check) -> DataFrame:
        """A source or view as of the view's epoch.

        A source that the epoch has not pinned is read at its newest version.
        """
        name, at = table_of(self._state, check.table), self._view.last_epoch
        assert at is not None
        if name is None:
            raise DeclarationError(f"there is no source or materialized view {check.table} any more")
        if name in self._state.views:
            other = self._state.views[name]
            reached = [epoch for epoch in other.epochs if epoch <= at]
            if not reached:
                raise EpochError(f"view {name} has not been built by epoch {at}")
            version = self._state.epochs[reached[-1]].versions[name].view_version
            return published_rows(self._session, self._warehouse, self._state, other, version=version)
        source = self._warehouse.source(self._state.sources[name])
        return source.snapshot(self._session, self._state.epochs[at].pins.get(name) or source.pin(None))

    # -- reports --------------------------------------------------------------------------------------------------

    def _check_columns(self, checks: Sequence[Check]) -> None:
        """Raise if rows of an earlier query lack a declared column."""
        known = {name.lower() for name in self._columns}
        for check in checks:
            missing = [column for column in check.columns if column.lower() not in known]
            if missing:
                raise EpochError(f"{self._view.name} has no column {', '.join(missing)} yet: the next run rebuilds it")

    def _report(self, check: Check, failing: int, message: str, shown: ShownRows, seconds: float) -> CheckReport:
        return CheckReport(self._view.name, check, not failing, self._view.last_epoch, failing, message, shown, seconds)

    def _problem(self, check: Check, error: Exception) -> CheckReport:
        known = isinstance(error, RelstateError | PySparkException | Py4JJavaError | OSError)
        problem = str(explained(self._view.name, None, error)) if known else f"{type(error).__name__}: {error}"
        return CheckReport(self._view.name, check, False, self._view.last_epoch, problem=problem)


def _violated(check: Check) -> Column:
    """Whether a row does not meet a condition: it is false, or NULL."""
    return ~F.coalesce(F.expr(check.condition), F.lit(False))


def _all_there(check: Check) -> Column:
    return reduce(Column.__and__, [F.col(quoted(column)).isNotNull() for column in check.columns])


def _is_within(rows: int, check: Check) -> bool:
    least, most = check.least_rows, check.most_rows
    return (least is None or rows >= least) and (most is None or rows <= most)


def _rounded(age: timedelta) -> str:
    """A length of time in its two largest units."""
    seconds = int(age.total_seconds())
    units = {"d": seconds // 86400, "h": seconds // 3600 % 24, "min": seconds // 60 % 60, "s": seconds % 60}
    first = next((n for n, count in enumerate(units.values()) if count), 3)
    return " ".join(f"{count} {unit}" for unit, count in list(units.items())[first : first + 2])
