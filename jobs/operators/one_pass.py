"""State and view computed in one pass, from one aggregate's rows.

Every affected group gives the view its old and its new row, and the state its new accumulators. In two steps, the groups
would be computed first and held by the driver, and then what is written of them. Here the state rows travel with it. The
aggregate's change set has a struct column for each table it keeps, and filters and projections pass these on. The job that
writes an epoch computes all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relstate_dagster.jobs.plan.aggregates.kind import CallStrategy
from relstate_dagster.jobs.plan.aggregates.registry import kinds_of
from relstate_dagster.jobs.plan.consolidated import has_pairs, is_consolidated
from relstate_dagster.jobs.plan.nodes import Aggregate, Filter, Materialize, PlanNode, Project
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.table_schema import StateTableDesc


@dataclass(slots=True)
class FusedColumns:
    """The columns in which state rows ride from one aggregate to the view.

    Parameters
    ----------
    carrier : the aggregate; ``None`` where nothing rides along.
    columns : each with the state table whose rows it has, once the carrier's operator has run: a struct of that table's
        columns and ``_weight``, NULL where a row carries none.
    """

    carrier: Aggregate | None = None
    columns: dict[str, StateTableDesc] = field(default_factory=dict)

    @property
    def kept(self) -> str:
        """Condition (SQL) of rows with a weight or with state rows."""
        return " OR ".join([f"{WEIGHT} != 0", *(f"{column} IS NOT NULL" for column in self.columns)])

    def column_of(self, desc: StateTableDesc) -> str:
        """The column for the rows of a table."""
        name = f"_rows_of_{desc.table_id}"
        self.columns[name] = desc
        return name


def fusion_root(root: PlanNode, uses: Mapping[PlanNode, int]) -> Aggregate | None:
    """The aggregate whose rows go to the view alone, one by one.

    ``None`` if there is none.
    """
    if not isinstance(root, Materialize) or not (is_consolidated(root.child) or has_pairs(root.child)):
        return None
    node = root.child
    while isinstance(node, Filter | Project) and uses[node] == 1:
        node = node.child
    if not isinstance(node, Aggregate) or uses[node] != 1:
        return None
    # Of the groups it is seen whose rows come late, and whose first values have run out.
    is_looked_at = node.is_of_changelog or any(kind.strategy is CallStrategy.EXTREME for kind in kinds_of(node))
    return None if is_looked_at else node
