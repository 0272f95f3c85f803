"""Strict mode: every operator's change set is checked by a Spark job.

* A change set has the columns of its node, and a weight.
* Where a node has a stream key, a change set has at most one insertion and one deletion of each key, of weight 1, once equal
  rows are summed.
* An append-only node deletes nothing.
* What a join retracts from its state is there (:func:`.jobs.operators.expired.check_agrees`).

The same job counts the rows of each.

Rows and keys are compared as JSON, so that one job takes all the nodes of a plan. Texts that a collation takes for equal, and
0.0 and −0.0, count as different then, which hides a violation and never makes one up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.epoch_rows import Flow
from relstate_dagster.jobs.plan.nodes import PlanNode
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.errors import StateError

#: Two times of one millisecond are two rows.
_EXACT_TIMES: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def check_change_sets(changes: Mapping[PlanNode, RowSet | None], view: str, epoch: int) -> dict[PlanNode, Flow]:
    """Check the change sets of an epoch, and count their insertions and deletions.

    Equal rows count each.

    Raises
    ------
    StateError : one is not what its operator promises; names the operator, its key, and a row.
    """
    flows: dict[PlanNode, Flow] = dict.fromkeys(changes, (0, 0))
    given = [(node, rows.frame) for node, rows in changes.items() if rows is not None]
    for node, frame in given:
        missing = {*node.column_names, WEIGHT} - set(frame.columns)
        if missing:
            raise StateError(
                f"view {view}, epoch {epoch}: strict mode: {_named(node)} gives no column {', '.join(sorted(missing))}; "
                "this is a fault of relstate"
            )
    if not given:
        return flows
    keyed = [n for n, (node, _) in enumerate(given) if node.stream_key is not None]
    appended = [n for n, (node, _) in enumerate(given) if node.append_only]
    is_wrong = (F.col("n").isin(keyed) & ((F.col("plus") > 1) | (F.col("minus") > 1))) | (
        F.col("n").isin(appended) & (F.col("minus") > 0)
    )
    promising = {*keyed, *appended}
    rows = _summed(_as_text(n, node, frame) if n in promising else _counted(n, frame) for n, (node, frame) in enumerate(given))
    of_keys = rows.groupBy("n", "key").agg(
        F.sum(F.greatest("w", F.lit(0))).alias("plus"),
        F.sum(F.greatest(-F.col("w"), F.lit(0))).alias("minus"),
        F.min(F.when(F.col("w") != 0, F.col("row"))).alias("row"),
        F.sum("inserted").alias("inserted"),
        F.sum("deleted").alias("deleted"),
    )
    of_nodes = of_keys.groupBy("n").agg(
        F.sum("inserted").alias("inserted"),
        F.sum("deleted").alias("deleted"),
        F.min(F.when(is_wrong, F.struct("key", "plus", "minus", "row"))).alias("wrong"),
    )
    for found in of_nodes.orderBy("n").collect():
        node, wrong = given[found.n][0], found.wrong
        if wrong is not None:
            raise StateError(
                f"view {view}, epoch {epoch}: strict mode: {_named(node)} gives {wrong.plus} insertion(s) and {wrong.minus} "
                f"deletion(s) of key {wrong.key}, among them row {wrong.row}. Check that the keys of its sources are unique "
                "and that its append-only sources delete nothing; otherwise this is a fault of relstate"
            )
        flows[node] = (found.inserted, found.deleted)
    return flows


def _named(node: PlanNode) -> str:
    key = "without a stream key" if node.stream_key is None else f"with stream key ({', '.join(node.stream_key)})"
    return f"operator {type(node).__name__} {key}"


def _as_text(number: int, node: PlanNode, changes: DataFrame) -> DataFrame:
    key, row = (
        F.to_json(F.struct(*[F.col(c).alias(f"_{n}") for n, c in enumerate(columns_of(names))]), _EXACT_TIMES)
        if names
        else F.lit("{}")
        for names in (node.column_names if node.stream_key is None else node.stream_key, node.column_names)
    )
    return changes.select(F.lit(number).alias("n"), key.alias("key"), row.alias("row"), F.col(WEIGHT).alias("w"))


def _counted(number: int, changes: DataFrame) -> DataFrame:
    """Rows of a change set without a contract, to be counted."""
    nothing = F.lit("").alias("key"), F.lit("").alias("row")
    return changes.select(F.lit(number).alias("n"), *nothing, F.col(WEIGHT).alias("w"))


def _summed(texts: Iterable[DataFrame]) -> DataFrame:
    """Equal rows summed, also to 0; ``inserted`` and ``deleted`` are what was summed."""
    signs = [F.sum(F.greatest(sign * F.col("w"), F.lit(0))) for sign in (1, -1)]
    summed = F.sum("w").alias("w"), signs[0].alias("inserted"), signs[1].alias("deleted")
    return reduce(DataFrame.union, texts).groupBy("n", "key", "row").agg(*summed)
