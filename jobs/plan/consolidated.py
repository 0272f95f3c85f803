"""Which nodes give change sets that nothing has to be summed in."""

from __future__ import annotations

from relstate_dagster.jobs.plan.nodes import Aggregate, Filter, PlanNode, Project, Scan
from relstate_dagster.state_lib.constants import ROW_ID


def is_consolidated(node: PlanNode) -> bool:
    """Whether change sets have at most one −1 and +1 row a key, never equal.

    An aggregate does: it sees each group once, and gives its old and its new row only where these differ. A filter keeps
    that, and so does a projection that renames or reorders all columns. A projection that drops or computes columns may
    make the two equal, unless only the new row exists. So it is with the rows of a scan that are given ids as they come in.
    """
    match node:
        case Scan():
            return node.append_only and node.key == (ROW_ID,)
        case Aggregate():
            return has_comparable_results(node)
        case Filter():
            return is_consolidated(node.child)
        case Project():
            passed_on = node.passed_on
            renames = len(passed_on) == len(node.expressions) and set(passed_on.values()) == set(node.child.column_names)
            only_inserts = node.append_only and node.stream_key is not None
            return (renames or only_inserts) and is_consolidated(node.child)
    return False


def has_pairs(node: PlanNode) -> bool:
    """Whether change sets have at most one −1 and +1 row a stream key.

    They may be equal, and compare.

    That is what filters and projections of an aggregate's changes give where the key comes through.
    """
    if node.stream_key is None or any(field.type.has_maps for field in node.schema):
        return False
    while isinstance(node, Filter | Project):
        node = node.child
    return isinstance(node, Aggregate)


def has_comparable_results(node: Aggregate) -> bool:
    """Whether an aggregate can compare a group's results.

    Maps do not compare.
    """
    return not any(call.output.type.has_maps for call in node.calls)
