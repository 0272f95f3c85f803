"""Run config of a project's views, for the Launchpad, besides the selection."""
# Dagster reads the annotations of a config as types: they are not to become strings.

from collections.abc import Sequence
from typing import Final

from dagster import AssetExecutionContext, Config
from pydantic import Field

from relstate_dagster.assets.specs import ProjectAssets
from relstate_dagster.jobs.declare.names import as_declared
from relstate_dagster.state_lib.errors import DeclarationError

#: Stands for every view that a run has.
ALL_VIEWS: Final = "*"


class ViewsConfig(Config):
    """Options of a run."""

    full_refresh: list[str] = Field(
        default=[],
        description="names of views to rebuild from their sources, with the views over them; '*': every view of the run",
    )
    until_version: dict[str, int] = Field(
        default={},
        description="Delta versions by the names of sources: this run reads these sources up to there at most",
    )
    strict: bool = Field(
        default=False,
        description="check and count what every operator gives, at the cost of Spark jobs; a view that fails is left behind",
    )

    @classmethod
    def of(cls, context: AssetExecutionContext) -> "ViewsConfig":
        """Return the config of a run."""
        return cls(**(context.op_execution_context.op_config or {}))

    def rebuilt(self, assets: ProjectAssets, names: Sequence[str]) -> list[str]:
        """Return the views to rebuild in a run over some views.

        Raises
        ------
        DeclarationError
            The project has no such view, or the run makes checks only.
        """
        if not names and (self.full_refresh or self.until_version):
            raise DeclarationError("full_refresh and until_version are for runs that materialize: this one only makes checks.")
        wanted = [*names, *self.full_refresh] if ALL_VIEWS in self.full_refresh else self.full_refresh
        found = list(dict.fromkeys(as_declared(name, assets.views) for name in wanted if name != ALL_VIEWS))
        unknown = [name for name in found if name not in assets.views]
        if unknown:
            raise DeclarationError(
                f"full_refresh: the project has no view {', '.join(unknown)}; there are {', '.join(assets.views) or 'none'} "
                f"(and {ALL_VIEWS!r} for every view of the run)."
            )
        return found
