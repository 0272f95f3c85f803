"""Views as inputs of assets: Spark, Arrow or pandas, by the argument's type."""

from __future__ import annotations

from typing import Any, Final

from dagster import ConfigurableIOManager, InputContext, OutputContext
from pydantic import Field, PrivateAttr

from relstate_dagster.assets.specs import VIEW
from relstate_dagster.resources import RowsAs, WarehouseResource
from relstate_dagster.state_lib.errors import DeclarationError

#: What rows are read as, by the package and name of a type.
_TYPES: Final[dict[tuple[str, str], RowsAs]] = {
    ("pyspark", "DataFrame"): "spark",
    ("pyarrow", "Table"): "arrow",
    ("pandas", "DataFrame"): "pandas",
}


class ViewIOManager(ConfigurableIOManager):
    """Reads views for the assets below them.

    All views that a run reads are read at one epoch: that to which the run has brought them, else the newest when the run
    first asks. An argument without a type gets a Spark DataFrame.
    """

    warehouse: WarehouseResource = Field(description="the warehouse of the views")
    _newest: dict[str, int | None] = PrivateAttr(default_factory=dict)

    def load_input(self, context: InputContext) -> Any:
        """Return the rows of a view, without hidden columns.

        The view is the one that the asset stands for; ``AssetIn(metadata={"relstate/view": name})`` names one that a code
        location knows by its key alone.
        """
        return self.warehouse.read(_view_of(context), _form_of(context), epoch=self._epoch(context))

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Refuse: views are written by their own runs."""
        raise DeclarationError(
            f"{context.asset_key.to_user_string()} is no view: ViewIOManager reads views, and writes nothing."
        )

    def _epoch(self, context: InputContext) -> int | None:
        run_id = context.step_context.run_id
        # A run that reads views before it brings others up to date goes on with what it then has.
        reached = self.warehouse.epoch_for(run_id)
        if reached is None:
            if run_id not in self._newest:
                self._newest[run_id] = self.warehouse.newest_epoch()
            reached = self._newest[run_id]
        return reached


def _view_of(context: InputContext) -> str:
    upstream = context.upstream_output
    for metadata in (context.definition_metadata, upstream.definition_metadata if upstream is not None else None):
        if metadata and VIEW in metadata:
            return str(metadata[VIEW])
    return context.asset_key.path[-1]


def _form_of(context: InputContext) -> RowsAs:
    wanted = context.dagster_type.typing_type
    if wanted is Any:
        return "spark"
    form = _TYPES.get((str(getattr(wanted, "__module__", "")).split(".")[0], str(getattr(wanted, "__name__", ""))))
    if form is None:
        raise DeclarationError(
            f"{context.asset_key.to_user_string()} cannot be read as {wanted}: the argument's type is one of "
            "pyspark.sql.DataFrame, pyarrow.Table, pandas.DataFrame."
        )
    return form
