"""Lookups in place: rows of the relations below a join side, by keys.

Filters, projections and unions are applied to the rows found; those of an aggregate are in the state that it keeps. An
inner join is evaluated outwards from the side that has the wanted keys: the rows found there are computed first, and are
what the other side is asked for. No side is ever read for more than the keys that are asked, as far as files, pages and a
hash join tell.

To know the keys first costs a job and a plan of its own. A side is therefore read whole if it has at most one row for each
key, and few enough rows in all to read its files whole. Joins with such sides follow each other in one plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators import aggregate_rows, aggregate_value, arrange
from relstate_dagster.jobs.operators.aggregate_group import tables_by_role
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.linear import evaluated
from relstate_dagster.jobs.operators.old_rows import computable
from relstate_dagster.jobs.operators.row_rules import joined
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Aggregate, Arrange, Filter, Join, PlanNode, Project, Scan, UnionAll
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.tuning import tuning

_FIRST_WEIGHT = "_first_weight"
_SECOND_WEIGHT = "_second_weight"
_WANTED = "_wanted_"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows wanted of a lookup: column ``ours`` equals ``theirs`` of the change set."""

    ours: str
    theirs: str
    null_safe: bool = False


def rows_now(ctx: EpochContext, node: PlanNode, wanted_by: RowSet, wanted: Sequence[Wanted]) -> DataFrame:
    """Rows of a node that a change set asks for, and maybe more.

    Parameters
    ----------
    wanted_by : a change set that was shared.
    wanted : the equalities; none means every row.

    Returns
    -------
    The node's columns and ``_weight``.
    """
    match node:
        case Scan():
            lookup_keys = _lookup_keys(ctx, node, wanted_by, wanted)
            return ctx.relations.rows(node.relation, lookup_keys).selectExpr(*columns_of(node.column_names), WEIGHT)
        case Arrange():
            on = _in_order(node.stream_key or (), [w for w in wanted if not w.null_safe])
            kept = arrange.rows_now(ctx, node, wanted_by, on)
            if kept is None:
                read = _rows_read(ctx, node.child, wanted_by, wanted)
                kept = arrange.keep(ctx, node, read, lambda c: rows_now(c, node.child, wanted_by, ()))
            return rows_now(ctx, node.child, wanted_by, wanted) if kept is None else kept
        case Filter() | Project():
            of_child = _below(node, wanted) if isinstance(node, Project) else wanted
            return evaluated(ctx, node, rows_now(ctx, node.child, wanted_by, of_child))
        case UnionAll():
            return evaluated(ctx, node, *(rows_now(ctx, child, wanted_by, wanted) for child in node.inputs))
        case Join():
            return _joined_now(ctx, node, wanted_by, wanted)
        case Aggregate():
            return aggregate_rows.rows_now(ctx, node, wanted_by, _in_order(node.group, wanted))
    raise PlanError(f"{type(node).__name__} cannot be looked up in place")


def provably_absent_before(ctx: EpochContext, node: PlanNode, wanted_by: RowSet, wanted: Sequence[Wanted]) -> bool:
    """Whether a node in place certainly had no row that a change set asks for.

    As of the last epoch.

    So it is where new rows have new keys: orders that come with their lines.
    """
    match node:
        case Scan():
            return any(ctx.relations.provably_absent_before(node.relation, keys) for keys in _known(wanted_by, wanted))
        case Filter() | Arrange():
            return provably_absent_before(ctx, node.child, wanted_by, wanted)
        case Project():
            return provably_absent_before(ctx, node.child, wanted_by, _below(node, wanted))
        case UnionAll():
            return all(provably_absent_before(ctx, child, wanted_by, wanted) for child in node.inputs)
        case Join():
            sides = (node.left, node.right)
            return any(
                provably_absent_before(ctx, s, wanted_by, [w for w in wanted if w.ours in s.column_names]) for s in sides
            )
    return False


def _known(wanted_by: RowSet, wanted: Sequence[Wanted]) -> list[LookupKeys]:
    """Known values of each wanted column in the rows asked for."""
    pairs = [(w.ours, w.theirs) for w in wanted if not w.null_safe]
    # Each column first once: by its values pages are skipped, by all of them vnodes.
    found = (wanted_by.lookup_keys([pair, *(p for p in pairs if p[0] != pair[0])]) for pair in pairs)
    return [keys for keys in found if keys is not None]


def _lookup_keys(ctx: EpochContext, node: Scan, wanted_by: RowSet, wanted: Sequence[Wanted]) -> LookupKeys | None:
    """Keys of a lookup in a source: the wanted column with fewest rows."""
    known = _known(wanted_by, wanted)
    if len(known) < 2:
        return known[0] if known else None
    counts = [ctx.relations.rows_read(node.relation, keys) for keys in known]
    return min(zip(known, counts, strict=True), key=lambda pair: math.inf if pair[1] is None else pair[1])[0]


def _rows_read(ctx: EpochContext, node: PlanNode, wanted_by: RowSet, wanted: Sequence[Wanted]) -> float | None:
    """About how many rows of sources a lookup reads; ``None`` if unknown."""
    match node:
        case Scan():
            return ctx.relations.rows_read(node.relation, _lookup_keys(ctx, node, wanted_by, wanted))
        case Project():
            return _rows_read(ctx, node.child, wanted_by, _below(node, wanted))
    counts = [_rows_read(ctx, child, wanted_by, wanted) for child in node.children]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _in_order(key: Sequence[str], wanted: Sequence[Wanted]) -> list[tuple[str, str]]:
    """Wanted column pairs in the state's order.

    Files and pages are skipped by the first column.
    """
    theirs = {w.ours: w.theirs for w in wanted}
    return [(column, theirs[column]) for column in key if column in theirs]


def _below(node: Project, wanted: Sequence[Wanted]) -> list[Wanted]:
    """Wanted columns of a projection, in terms of its input.

    Computed columns are left out.
    """
    passed_on = node.passed_on
    return [replace(w, ours=passed_on[w.ours]) for w in wanted if w.ours in passed_on]


def _joined_now(ctx: EpochContext, node: Join, wanted_by: RowSet, wanted: Sequence[Wanted]) -> DataFrame:
    if ctx.leaves_out_old_errors and node.residual is not None:
        pairs = _joined_now(ctx, replace(node, residual=None), wanted_by, wanted)
        return computable(ctx, node, ctx.row_sets.of(pairs)).frame.where(node.residual)
    of_left = [w for w in wanted if w.ours in node.left.column_names]
    of_right = [w for w in wanted if w.ours in node.right.column_names]
    from_left = len(of_left) >= len(of_right)
    first, second = (node.left, node.right) if from_left else (node.right, node.left)
    asked = of_left if from_left else of_right
    if not asked:
        left, right = (rows_now(ctx, side, wanted_by, ()) for side in (node.left, node.right))
        pairs = joined(node, left.withColumnRenamed(WEIGHT, _FIRST_WEIGHT), right.withColumnRenamed(WEIGHT, _SECOND_WEIGHT))
        return pairs.selectExpr(*columns_of(node.column_names), f"{_FIRST_WEIGHT} * {_SECOND_WEIGHT} AS {WEIGHT}")
    found = _asked_for(rows_now(ctx, first, wanted_by, asked), wanted_by, asked)
    keys = [Wanted(k.right, k.left, k.null_safe) if from_left else Wanted(k.left, k.right, k.null_safe) for k in node.keys]
    whole = match_whole(ctx, node, second, keys, found.withColumnRenamed(WEIGHT, _FIRST_WEIGHT), _SECOND_WEIGHT)
    pairs = _matched_keys(ctx, node, second, keys, found) if whole is None else whole
    return pairs.selectExpr(*columns_of(node.column_names), f"{_FIRST_WEIGHT} * {_SECOND_WEIGHT} AS {WEIGHT}")


def _matched_keys(ctx: EpochContext, node: Join, side: PlanNode, wanted: Sequence[Wanted], found: DataFrame) -> DataFrame:
    keys = ctx.row_sets.shared(found)
    partners = rows_now(ctx, side, keys, wanted).withColumnRenamed(WEIGHT, _SECOND_WEIGHT)
    return joined(node, partners, keys.broadcastable(keys.frame.withColumnRenamed(WEIGHT, _FIRST_WEIGHT)))


def _asked_for(rows: DataFrame, wanted_by: RowSet, wanted: Sequence[Wanted]) -> DataFrame:
    """Exactly the rows that match some row of the change set."""
    # Names of its own for the keys: both sides may call a column the same.
    keys = wanted_by.frame.select(*(F.col(quoted(w.theirs)).alias(f"{_WANTED}{n}") for n, w in enumerate(wanted)))
    condition = F.lit(True)
    for n, w in enumerate(wanted):
        ours, theirs = F.col(quoted(w.ours)), F.col(f"{_WANTED}{n}")
        condition = condition & (ours.eqNullSafe(theirs) if w.null_safe else ours == theirs)
    return rows.join(wanted_by.broadcastable(keys), condition, "left_semi")


def match_whole(
    ctx: EpochContext, node: Join, side: PlanNode, wanted: Sequence[Wanted], rows: DataFrame, weight: str
) -> DataFrame | None:
    """Rows joined with a side that is better read whole; ``None`` if it is not.

    Nothing else may read these rows.

    The rows are never broadcast: their number is unknown, and one changed row may have matched half of a large table.

    Parameters
    ----------
    wanted : the join's equalities, seen from the side.
    rows : rows of the other side.
    weight : the name for the weight of the side's rows.
    """
    if not ctx.row_sets.shares_by_jobs or side.stream_key is None or not set(side.stream_key) <= {w.ours for w in wanted}:
        return None
    most = _most_rows(ctx, side)
    if most is None or most >= tuning().unfiltered_rows:
        return None
    partners = rows_now(ctx, side, ctx.row_sets.of(rows), ()).withColumnRenamed(WEIGHT, weight)
    return joined(node, rows, ctx.row_sets.hinted(partners) if most <= tuning().sent_rows else partners)


def _most_rows(ctx: EpochContext, side: PlanNode) -> int | None:
    """Maximum rows of a side in place and its relations; ``None`` if unknown."""
    if isinstance(side, Scan):
        return ctx.relations.row_count(side.relation)
    if isinstance(side, Arrange):
        kept = arrange.rows_kept(ctx, side)
        return _most_rows(ctx, side.child) if kept == 0 else kept
    if isinstance(side, Aggregate):
        return None if ctx.state_is_new(side) else aggregate_value.few_rows(tables_by_role(ctx, side))
    counts = [_most_rows(ctx, child) for child in side.children]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return None
    if not isinstance(side, Join):
        return sum(known)
    # One side's key is the join's key where the other side matches at most once.
    once = side.stream_key in (side.left.stream_key, side.right.stream_key)
    return max(known) if once else math.prod(max(count, 1) for count in known)
