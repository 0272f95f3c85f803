"""``relstate explain VIEW``: how a view is maintained."""

from __future__ import annotations

from relstate_dagster.cli.app import WarehouseOption, app, location, output
from relstate_dagster.cli.tables import wrapped_plan
from state_lib.errors import DeclarationError


@app.command()
def explain(view: str, warehouse: WarehouseOption = None) -> None:
    """Show a view's plan: nodes, costs, state tables, and the reason where it is not incremental. Needs no Spark."""
    from jobs.api import Warehouse  # noqa: PLC0415 - imports PySpark
    from jobs.planner.explain import explain_plan  # noqa: PLC0415
    from jobs.script.strategy import strategy_line  # noqa: PLC0415

    state = Warehouse(location(None, warehouse).warehouse).read()
    entry = state.views.get(view)
    if entry is None or entry.plan is None:
        raise DeclarationError(f"no materialized view {view}; there are {', '.join(sorted(state.views)) or 'none'}")
    output.print(strategy_line(entry), highlight=False, markup=False)
    text = explain_plan(entry.plan, entry.tables)
    # A terminal's lines are wrapped below where they began; a file gets them as they are.
    shown = wrapped_plan(text, output.width) if output.is_terminal else text
    output.print(shown, highlight=False, markup=False, soft_wrap=True)
