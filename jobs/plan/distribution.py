"""Distribution of each node's rows over vnodes, and exchanges that change it.

A node that keeps rows in state tables wants its input spread as these tables are: by their distribution key. What the input is
spread by already follows from the nodes below. Only where the two differ do rows go to other vnodes: an exchange. What that
takes depends on the epoch: a shuffle of Spark's, or in a small one the driver's sort by vnode.

===============================  =======================================================================
node                             its rows are spread
===============================  =======================================================================
scan without a key, append-only  by ``_row_id``, which carries its vnode
any other scan                   as files have them: not by anything
filter, generate                 as the input
projection                       as the input, where it keeps the columns (under other names, too)
union                            as the inputs, where they are spread alike
aggregate, window, arrange       by the distribution key of its state tables: group, partition, key
join of two state tables         by the join key, of a side whose rows are never padded with NULLs
join with a side in place        not by anything: changes are sent to where the side's rows lie
limit, global aggregate, values  not at all: one vnode
view                             by its stream key
===============================  =======================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from relstate_dagster.jobs.plan.nodes import (
    Aggregate,
    Arrange,
    Filter,
    Generate,
    Join,
    Materialize,
    PlanNode,
    Project,
    Scan,
    Temporal,
    TopN,
    UnionAll,
    Values,
    Window,
    walk,
)
from relstate_dagster.jobs.plan.state_tables import infer_state_tables
from relstate_dagster.state_lib.constants import ROW_ID


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distribution of rows over vnodes: by a hash of columns.

    By none: one vnode. ``None``: unknown.
    """

    columns: tuple[str, ...] | None

    @property
    def text(self) -> str:
        """As explain prints it."""
        if self.columns is None:
            return "any"
        if self.columns == (ROW_ID,):
            return f"vnode of {ROW_ID}"
        return f"hash ({', '.join(self.columns)})" if self.columns else "single"


ANY: Final = Distribution(None)
SINGLE: Final = Distribution(())


def distribution(node: PlanNode) -> Distribution:  # noqa: PLR0911 - one return a kind of node
    """Distribution of the rows in a node's change set."""
    match node:
        case Scan():
            return Distribution(node.key) if node.key == (ROW_ID,) else ANY
        case Values():
            return SINGLE
        case Filter() | Generate():
            return distribution(node.child)
        case Project():
            return _projected(node)
        case UnionAll():
            spread = {distribution(child) for child in node.inputs}
            return spread.pop() if len(spread) == 1 else ANY
        case Join():
            return _joined(node)
        case Aggregate() | Window() | TopN() | Temporal() | Arrange() | Materialize():
            (wanted,) = wanted_distributions(node)
            return wanted
    return ANY


def wanted_distributions(node: PlanNode) -> tuple[Distribution, ...]:
    """Wanted distribution of each input: that of the state tables for its rows.

    ``ANY`` where none keeps them.
    """
    keys = [Distribution(schema.distribution_key) for schema in infer_state_tables(node)]
    if isinstance(node, Join):
        tables = iter(keys)
        return tuple(ANY if in_place else next(tables) for in_place in (node.left_in_place, node.right_in_place))
    return tuple((keys or [ANY])[0] for _ in node.children)


def exchanges(node: PlanNode) -> tuple[Distribution | None, ...]:
    """The exchange that each input needs; ``None`` if it is distributed already."""
    pairs = zip(wanted_distributions(node), node.children, strict=True)
    return tuple(None if wanted in (ANY, distribution(child)) else wanted for wanted, child in pairs)


def has_exchanges(root: PlanNode) -> bool:
    """Whether some rows of a plan go to other vnodes than they came in."""
    return any(exchange is not None for node in walk(root) for exchange in exchanges(node))


def _projected(node: Project) -> Distribution:
    below = distribution(node.child).columns
    if below is None:
        return ANY
    names: dict[str, str] = {}
    for ours, theirs in node.passed_on.items():
        names.setdefault(theirs, ours)
    return Distribution(tuple(names[name] for name in below)) if set(below) <= names.keys() else ANY


def _joined(node: Join) -> Distribution:
    left, right = wanted_distributions(node)
    if ANY in (left, right) or node.join_type == "full outer":
        return ANY
    return right if node.join_type == "right outer" else left
