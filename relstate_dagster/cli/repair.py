"""``relstate repair``: a damaged catalog put back to its last version that can be read."""

from __future__ import annotations

from relstate_dagster.cli.app import WarehouseOption, app, console, location


@app.command()
def repair(warehouse: WarehouseOption = None) -> None:
    """Restore the last readable version of a damaged catalog.

    No run may be at work meanwhile. The next run brings the views up to date.
    """
    from relstate_dagster.jobs.catalog.repair import repair as repaired  # noqa: PLC0415 - imports PySpark
    from relstate_dagster.jobs.engine.instants import utc_now  # noqa: PLC0415

    where = location(None, warehouse)
    done = repaired(where.warehouse, utc_now())
    if done is None:
        console.print("the catalog can be read: nothing to repair", highlight=False)
        return
    console.print(
        f"the catalog is that of version {done.version} of {done.newest}: {len(done.state.sources)} sources, "
        f"{len(done.state.views)} views; the damaged one is kept at {done.kept_at}. The next relstate run declares again "
        "what was declared since, and brings the views up to date",
        highlight=False,
        soft_wrap=True,
    )
