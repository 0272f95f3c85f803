"""``relstate explain VIEW``: how a view is maintained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relstate_dagster.cli.app import WarehouseOption, app, location, output
from relstate_dagster.cli.tables import wrapped_plan


@app.command()
def explain(
    view: str,
    warehouse: WarehouseOption = None,
    svg: Annotated[
        Path | None,
        typer.Option(help="Write the plan as a picture to this file as well, with the rows of its last epoch.", dir_okay=False),
    ] = None,
) -> None:
    """Show a view's plan, state tables, costs and next epoch, without Spark.

    And why it is not incremental, if it is not.
    """
    from relstate_dagster.jobs.api import Warehouse, preview_view  # noqa: PLC0415 - imports PySpark
    from relstate_dagster.jobs.engine import SPARKS_OWN_TASKS, SparkSettings  # noqa: PLC0415
    from relstate_dagster.jobs.plan.picture import plan_svg  # noqa: PLC0415
    from relstate_dagster.jobs.script.strategy import explained_view  # noqa: PLC0415

    home = Warehouse(location(None, warehouse).warehouse)
    state = home.read()
    entry = state.view(view)
    following = preview_view(home, state, entry, most_tasks=SparkSettings().shuffle_tasks or SPARKS_OWN_TASKS)
    if svg is not None:
        svg.write_text(plan_svg(entry.plan, entry.node_tables, entry.rows), encoding="utf-8")
    text = explained_view(entry, following.lines, state.sources)
    # A terminal's lines are wrapped below where they began; a file gets them as they are.
    shown = wrapped_plan(text, output.width) if output.is_terminal else text
    output.print(shown, highlight=False, markup=False, soft_wrap=True)
