"""Views in a notebook: declared, brought up to date, and shown as rich output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare import ViewDeclaration
from relstate_dagster.jobs.declare.parser import check_view_properties
from relstate_dagster.jobs.declare.python_views import query_here
from relstate_dagster.jobs.declare.query_function import text_of_query
from relstate_dagster.jobs.engine.session import SHUFFLE_PARTITIONS, SPARKS_OWN_TASKS
from relstate_dagster.jobs.inspect.verify import published_rows
from relstate_dagster.jobs.plan.picture import plan_svg
from relstate_dagster.jobs.registration.registry import Registry
from relstate_dagster.jobs.run.preview import preview_view
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.script.session import ScriptSession
from relstate_dagster.jobs.script.strategy import explained_view, strategy_line
from relstate_dagster.jobs.view_epoch.shown_rows import as_texts
from relstate_dagster.state_lib.errors import DeclarationError

#: Rows of a view that are shown.
_SHOWN_ROWS: Final = 20


@dataclass(frozen=True)
class Shown:
    """Output of a cell: text, and HTML where a notebook shows it."""

    text: str
    html: str = field(repr=False, default="")

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html or f"<pre>{escape(self.text)}</pre>"


class Notebook:
    """A warehouse in a notebook.

    Parameters
    ----------
    warehouse
        Its folder or address.
    functions
        The callable that registers what views call, as ``RELSTATE_FUNCTIONS`` names it.

    Examples
    --------
    >>> relstate = Notebook(spark, "shop_warehouse")  # doctest: +SKIP
    >>> relstate.view("days", lambda spark: spark.table("orders").groupBy("day").count())  # doctest: +SKIP
    """

    def __init__(self, spark: SparkSession, warehouse: str | Path, functions: str | None = None) -> None:
        self.spark = spark
        self.warehouse = Warehouse(warehouse, functions)

    def sql(self, text: str) -> Shown:
        """Run statements, as ``relstate sql`` does, and show the rows of the last query.

        Raises
        ------
        RelstateError, PySparkException
            A statement fails; those before it are done.
        """
        script = ScriptSession(self.spark, self.warehouse)
        shown = Shown("done")
        try:
            for result in script.run(text):
                if isinstance(result, tuple):
                    raise result[1]
                if result.is_query:
                    rows = [[str(value) for value in row] for row in result.rows or ()]
                    shown = _table(result.columns or (), rows)
        finally:
            script.close()
        return shown

    def view(
        self,
        name: str,
        query: str | Callable[..., DataFrame],
        *,
        comment: str | None = None,
        cluster_by: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> NotebookView:
        """Declare a view, or edit it, and bring it up to date.

        Parameters
        ----------
        query
            SQL, or a function of a session that returns a DataFrame.

        Raises
        ------
        DeclarationError, PlanError
            The view cannot be planned.
        """
        if isinstance(query, DataFrame):
            raise DeclarationError(
                f"view {name}: give the function that returns the DataFrame, as in lambda spark: spark.table('orders'): it is "
                "called with the sessions that plan and verify the view"
            )
        declared = ViewDeclaration(
            name=name,
            query=query if isinstance(query, str) else query_here(query, name),
            comment=comment,
            cluster_by=tuple(cluster_by),
            properties=dict(properties or {}),
        )
        Registry(self.spark, self.warehouse).declare([check_view_properties(declared)])
        found = NotebookView(self, name)
        found.refresh()
        return found


class NotebookView:
    """A view of a notebook's warehouse; shows its strategy and some of its rows."""

    def __init__(self, notebook: Notebook, name: str) -> None:
        self._notebook, self.name = notebook, name

    def refresh(self) -> Shown:
        """Bring the view up to date, and show what the epoch did."""
        reports = list(EpochRunner(self._notebook.spark, self._notebook.warehouse).run([self.name]))
        columns = ("view", "epoch", "strategy", "rows +", "rows −", "seconds")
        rows = [
            [r.view, str(r.epoch), r.strategy, str(r.rows_inserted), str(r.rows_deleted), f"{sum(r.seconds.values()):.2f}"]
            for r in reports
        ]
        return _table(columns, rows)

    def rows(self) -> DataFrame:
        """The rows of the view, as of its newest epoch."""
        return published_rows(self._notebook.spark, self._notebook.warehouse, self._notebook.warehouse.read(), self._entry())

    def explain(self) -> Shown:
        """Show the plan, the state tables and the steps of the next epoch."""
        warehouse, view = self._notebook.warehouse, self._entry()
        state = warehouse.read()
        tasks = int(self._notebook.spark.conf.get(SHUFFLE_PARTITIONS) or SPARKS_OWN_TASKS)
        text = explained_view(view, preview_view(warehouse, state, view, most_tasks=tasks).lines, state.sources)
        return Shown(text, f"{plan_svg(view.plan, view.node_tables, view.rows)}<pre>{escape(text)}</pre>")

    def verify(self) -> Shown:
        """Compare the view with its query run in full, and show rows that differ."""
        (report,) = EpochRunner(self._notebook.spark, self._notebook.warehouse).verify([self.name])
        if report.equal:
            return Shown(f"{self.name} equals its query run in full ({report.seconds:.1f} s)")
        if report.problem is not None:
            return Shown(f"{self.name} is not verified: {report.problem}")
        rows = [["missing", *map(str, row)] for row in report.missing.rows]
        rows += [["unexpected", *map(str, row)] for row in report.unexpected.rows]
        difference = f"{self.name} misses {report.missing_rows} rows, and has {report.unexpected_rows} too many"
        table = _table(("", *report.missing.columns), rows)
        return Shown(f"{difference}\n{table.text}", f"<p>{escape(difference)}</p>{table.html}")

    def __repr__(self) -> str:
        return self._shown().text

    def _repr_html_(self) -> str:
        return self._shown().html

    def _entry(self) -> ViewEntry:
        return self._notebook.warehouse.read().view(self.name)

    def _shown(self) -> Shown:
        view, rows = self._entry(), self.rows()
        names = [output.name for output in view.plan.output]
        cells = [list(row) for row in rows.select(*as_texts(rows, names)).limit(_SHOWN_ROWS).collect()]
        table = _table(names, [["NULL" if cell is None else str(cell) for cell in row] for row in cells])
        line, query = strategy_line(view), text_of_query(view.query)
        html = f"<p>{escape(line)}</p><details><summary>query</summary><pre>{escape(query)}</pre></details>{table.html}"
        return Shown(f"{line}\n{table.text}", html)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Shown:
    """Rows as text and as an HTML table."""
    widths = [max([len(name), *(len(row[n]) for row in rows)]) for n, name in enumerate(columns)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in [columns, *rows]]
    lines = [" | ".join(row).rstrip() for row in padded]
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return Shown("\n".join(lines), f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
