"""Window results from the latest rows of each partition, which are kept apart.

State: the last rows of a partition in the order of the window, and the carrier, the row before them
(:mod:`.jobs.plan.latest_rows`). Running values go on from those of the carrier; bounded frames lie within the kept rows.

A change of rows after the carrier needs nothing else, if all rows that it reaches have the rows of their frames. Other
partitions are read in full; which these are is found in the job that computes the results of all others. Kept rows are renewed
in either case. Where a partition has more rows, there are at least ``margin + state.window_rows`` of them after a renewal, and
up to ``state.window_rows`` more before the next. Deletions may leave fewer.

Cost: the kept rows of the affected partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, WindowSpec
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.aggregate_group import Affected
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.materialized_input import contradiction
from relstate_dagster.jobs.operators.ordering import by_order, by_order_then_all
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.latest_rows import AT, IS_CARRIER, PLACE, TARGET, VERSION
from relstate_dagster.jobs.plan.nodes import LatestRows, Reach, Window
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.lazy_frame import select
from relstate_dagster.state_lib.merge import sum_equal
from relstate_dagster.state_lib.sql_text import quoted, text_literal
from relstate_dagster.state_lib.state_table import StateTable
from relstate_dagster.state_lib.tuning import tuning

_IS_CHANGED: Final = f"({PLACE} IS NULL AND _old != _new)"
#: The value of a running column up to a row, while it is not known yet which rows become carriers.
_NEXT: Final = "_next"
_RESULT_WEIGHT: Final = "_result_weight"
_LATEST_WEIGHT: Final = "_latest_weight"
_IS_OUT: Final = "_is_out"


class LatestChange(NamedTuple):
    """Change of a window's results, as far as kept rows give it.

    Parameters
    ----------
    rows : the node's columns and ``_weight``, not consolidated.
    out : keys of partitions whose results they do not give.
    """

    rows: DataFrame
    out: RowSet


def change_from_latest(
    ctx: EpochContext, node: Window, latest: LatestRows, table: StateTable, changed: RowSet, affected: Affected
) -> LatestChange:
    """Compute results from the kept rows, and renew these.

    Of partitions that need other rows, the kept rows are deleted.

    Parameters
    ----------
    table : the kept rows.
    changed : the consolidated change set of the input.
    affected : the distinct partition keys to read.
    """
    assert node.reach is not None
    rows = _with_elements(
        _with_flags(_kept_and_changed(node, latest, table, changed, affected), node, latest, node.reach),
        latest,
        _sizes(ctx, latest),
        contradiction(table),
    )
    computed = _with_results(rows, node, latest, latest.one_by_one or latest.results)
    inputs, running = columns_of(node.child.column_names), [e.output.name for e in latest.running]
    # A version for one result has the other rows for its sake alone.
    is_wanted = f"NOT {IS_CARRIER} AND ({TARGET} IS NULL OR {TARGET} = {AT})"
    becomes_carrier = f"_name = 'new' AND {is_wanted} AND _dropped > 0 AND {AT} = _dropped"
    has_result = f"_is_reached AND {is_wanted}"
    signed = f"CASE WHEN NOT ({has_result}) THEN 0L WHEN _name = 'new' THEN 1L WHEN _name = 'old' THEN -1L"
    found = select(
        computed,
        [
            *inputs,
            *(f"IF(_name = 'state', {name}, {_NEXT}_{n}) AS {name}" for n, name in enumerate(running)),
            *(quoted(e.output.name) for e in node.expressions),
            f"{signed} ELSE 0L END AS {_RESULT_WEIGHT}",
            f"CASE WHEN _name = 'state' THEN _state_weight WHEN {becomes_carrier} THEN 1L ELSE 0L END AS {_LATEST_WEIGHT}",
            f"_name = 'out' AS {_IS_OUT}",
        ],
    )
    shared = ctx.row_sets.shared(found.where(f"{_RESULT_WEIGHT} != 0 OR {_LATEST_WEIGHT} != 0 OR {_IS_OUT}"))
    frame = shared.frame
    table.write(select(frame.where(f"{_LATEST_WEIGHT} != 0"), [*inputs, *running, f"{_LATEST_WEIGHT} AS {WEIGHT}"]))
    results = select(frame.where(f"{_RESULT_WEIGHT} != 0"), [*columns_of(node.column_names), f"{_RESULT_WEIGHT} AS {WEIGHT}"])
    return LatestChange(results, shared.where(_IS_OUT, node.partition or node.child.column_names[:1]))


def all_with_latest(ctx: EpochContext, node: Window, latest: LatestRows, copies: DataFrame, *, with_results: bool) -> DataFrame:
    """All rows of some partitions, and which of them are kept.

    Parameters
    ----------
    copies : the input's columns, one row for each copy.

    Returns
    -------
    The columns of the node, or of its input without results, those of the state table, and ``_latest_weight``: 1 for rows that
    are kept, else 0.
    """
    inputs = columns_of(node.child.column_names)
    nulls = (f"CAST(NULL AS {e.output.data_type}) AS {e.output.name}" for e in latest.running)
    rows = select(copies, [*inputs, *nulls, f"'new' AS {VERSION}"])
    computed = _with_results(_spread(rows, node), node, latest, latest.results if with_results else None)
    partition = ", ".join([*columns_of(node.partition), VERSION])
    keep, most = _sizes(ctx, latest)
    counted = select(computed, ["*", f"count(*) OVER (PARTITION BY {partition}) AS _all"])
    counted = select(counted, ["*", f"IF(_all > {most}, _all - {keep}, 0L) AS _dropped"])
    is_carrier, place = f"{_NEXT}_0 = _dropped", f"{_NEXT}_0"
    return select(
        counted,
        [
            *columns_of((node if with_results else node.child).column_names),
            *(f"IF({is_carrier}, {_NEXT}_{n}, NULL) AS {e.output.name}" for n, e in enumerate(latest.running)),
            f"IF({place} >= _dropped, 1L, 0L) AS {_LATEST_WEIGHT}",
        ],
    )


def write_latest(table: StateTable, rows: DataFrame) -> None:
    """Write the kept ones of some rows with ``_latest_weight``."""
    names = columns_of([c.name for c in table.desc.schema.columns])
    table.write(select(rows.where(f"{_LATEST_WEIGHT} != 0"), [*names, f"{_LATEST_WEIGHT} AS {WEIGHT}"]))


def _sizes(ctx: EpochContext, latest: LatestRows) -> tuple[int, int]:
    """Rows that are kept of a partition: after a renewal, and at most."""
    keep = latest.margin + ctx.window_rows
    return keep, keep + ctx.window_rows


def _kept_and_changed(node: Window, latest: LatestRows, table: StateTable, changed: RowSet, affected: Affected) -> DataFrame:
    """Kept and changed rows, with the number of their copies before and after."""
    names = [c.name for c in table.desc.schema.columns]
    columns = columns_of(names)
    nulls = (f"CAST(NULL AS {e.output.data_type}) AS {e.output.name}" for e in latest.running)
    change = select(changed.frame, [*columns_of(node.child.column_names), *nulls, "0L AS _old", f"{WEIGHT} AS _delta"])
    runs = affected.stored(table, node.partition, names)
    stored = select(runs, [*columns, f"{STATE_WEIGHT} AS _old", "0L AS _delta"])
    sums = {name: F.sum(name) for name in ("_old", "_delta")}
    summed = sum_equal(_spread(stored.union(change), node), table.desc.schema, names, sums)
    rows = summed.where("_old != 0 OR _delta != 0")
    return select(rows, [*columns, "_old", "_old + _delta AS _new"])


def _spread(rows: DataFrame, node: Window) -> DataFrame:
    """Rows with each partition in one task."""
    return rows.repartition(*columns_of(node.partition)) if node.partition else rows.coalesce(1)


def _total_order(node: Window) -> list[Column]:
    """The total order of the window's rows, the carrier before equal rows."""
    return [*by_order_then_all(node.order, node.child.schema), F.col(PLACE).desc_nulls_last()]


def _with_flags(rows: DataFrame, node: Window, latest: LatestRows, reach: Reach) -> DataFrame:
    """Rows with the results that may change, and partitions that need more rows."""
    partition = Over.partitionBy(*columns_of(node.partition))
    by_row = partition.orderBy(*_total_order(node))
    so_far = by_row.rowsBetween(Over.unboundedPreceding, Over.currentRow)
    versions = ("_old", "_new")

    def over(sql: str, spec: WindowSpec) -> Column:
        return F.expr(sql).over(spec)

    found = rows.select(
        "*",
        *(over(f"sum(IF({IS_CARRIER}, 0L, {copies}))", so_far).alias(f"{copies}_until") for copies in versions),
        over(f"max({IS_CARRIER})", so_far).alias("_is_after"),
    )
    reached, near = [_IS_CHANGED], []
    if reach.after is None or reach.after > 0:
        near += [over(f"max(IF({_IS_CHANGED}, {copies}_until, NULL))", so_far).alias(f"{copies}_last") for copies in versions]
        distances = (f"{copies}_until - {copies} + 1 - {copies}_last" for copies in versions)
        reached += (
            ["_old_last IS NOT NULL"] if reach.after is None else [f"{distance} <= {reach.after}" for distance in distances]
        )
    if reach.before:
        near.append(over(f"max({_IS_CHANGED})", by_row.rowsBetween(0, reach.before)).alias("_is_before"))
        reached.append("_is_before")
    if reach.peers or latest.splits_no_peers:
        peers = partition.orderBy(*by_order(node.order)).rangeBetween(Over.unboundedPreceding, Over.currentRow)
        near.append(over(f"max({_IS_CHANGED})", peers).alias("_is_peer"))
        reached += ["_is_peer"] if reach.peers else []
    found = found.select("*", *near) if near else found
    found = select(found, ["*", f"coalesce({' OR '.join(reached)}, false) AS _is_reached"])
    before = f"_old_until - IF({IS_CARRIER}, 0L, _old)"
    misses = f"_is_reached AND ({IS_CARRIER} OR NOT _is_after OR {before} < {latest.before} OR _new < 0)"
    if latest.splits_no_peers:
        misses = f"({misses}) OR ({IS_CARRIER} AND _is_peer)"
    is_result = f"(_is_reached AND NOT {IS_CARRIER})"
    found = found.select(
        "*",
        (over(f"max({misses})", partition) & over(f"max({IS_CARRIER})", partition)).alias("_misses"),
        over(f"sum(IF({is_result}, _old + _new, 0L))", partition).alias("_results"),
    )
    few, targets = "true", []
    if latest.one_by_one:
        # Each row has the list of all results of its partition.
        few = f"_results <= {tuning().single_results}"
        for copies, is_new in zip(versions, (0, 1), strict=True):
            first, last = (_use_of(place, is_new) for place in (f"{copies}_until - {copies} + 1", f"{copies}_until"))
            places = f"sequence({first}, {last}, 2L)"
            of_row = f"collect_list(IF({is_result} AND {few} AND {copies} > 0, {places}, NULL))"
            targets.append(F.flatten(over(of_row, partition)).alias(f"{copies}_targets"))
    return found.select(
        "*",
        F.expr(f"_misses OR NOT ({few})").alias(_IS_OUT),
        *(over(f"max({is_result} AND {copies} > 0)", partition).alias(f"{copies}_wanted") for copies in versions),
        *targets,
        over("max(_new_until)", partition).alias("_all"),
    )


def _with_elements(rows: DataFrame, latest: LatestRows, sizes: tuple[int, int], problem: str) -> DataFrame:
    """Each row once for each use: copies of versions, and what changes of the state.

    Versions in which no result may change are left out. Where results are computed one by one, there is a version for each.
    """
    keep, most = sizes
    rows = select(rows, ["*", f"IF(_all > {most}, _all - {keep}, 0L) AS _dropped"])
    stays = f"CASE WHEN {_IS_OUT} THEN 0L WHEN {IS_CARRIER} THEN IF(_dropped > 0, 0L, 1L)"
    # The copies of a row that lie after those that are dropped.
    stays += " ELSE greatest(0L, least(_new, _new_until - _dropped)) END"
    checked = f"IF(_new < 0, CAST(raise_error({text_literal(problem)}) AS BIGINT), _new)"
    copies = {
        "old": f"IF(NOT {_IS_OUT} AND _old_wanted, _old, 0L)",
        "new": f"CASE WHEN {_IS_OUT} THEN 0L WHEN _new_wanted OR _dropped > 0 OR _new < 0 THEN {checked} ELSE 0L END",
    }
    rows = select(rows, ["*", f"{stays} - _old AS _state_weight"])
    is_state, is_out = "_state_weight != 0", f"{_IS_OUT} AND {_IS_CHANGED}"
    if latest.one_by_one:
        return _with_uses_of_one(rows, copies, is_state, is_out)
    uses = copies | {"state": f"IF({is_state}, 1L, 0L)", "out": f"IF({is_out}, 1L, 0L)"}
    listed = ", ".join(f"struct('{name}' AS version, {number} AS copies)" for name, number in uses.items())
    exploded = select(rows, ["*", f"explode(array({listed})) AS _use"]).where("_use.copies > 0")
    exploded = select(exploded, ["*", "explode(sequence(1L, _use.copies)) AS _copy"])
    named = ["_use.version AS _name", f"_use.version AS {VERSION}", f"CAST(NULL AS BIGINT) AS {TARGET}"]
    return select(exploded, ["*", *named, _at("_use.version = 'old'")])


def _with_uses_of_one(rows: DataFrame, copies: Mapping[str, str], is_state: str, is_out: str) -> DataFrame:
    """As :func:`_with_elements`, where results are computed one by one.

    A use is a number, so that nothing is made of the rows that have none. It is 0 for the state and -1 for rows that are left
    out. For results it is that of :func:`_use_of`.
    """
    carriers = f"IF(_dropped > 0, array({_use_of('_dropped', 1)}), CAST(array() AS ARRAY<BIGINT>))"
    results = f"concat(_old_targets, array_union(_new_targets, {carriers}))"
    others = f"array_compact(array(IF({is_state}, 0L, NULL), IF({is_out}, -1L, NULL)))"
    used = f"explode(IF({is_state} OR {is_out}, concat({others}, {results}), {results})) AS {VERSION}"
    names = (
        f"CASE WHEN {VERSION} = 0 THEN 'state' WHEN {VERSION} < 0 THEN 'out' WHEN {VERSION} % 2 = 0 THEN 'old' ELSE 'new' END"
    )
    exploded = select(select(rows, ["*", used]), ["*", f"{names} AS _name"])
    number = f"CASE _name WHEN 'old' THEN {copies['old']} WHEN 'new' THEN {copies['new']} ELSE 1L END AS _copies"
    exploded = select(exploded, ["*", number]).where("_copies > 0")
    exploded = select(exploded, ["*", "explode(sequence(1L, _copies)) AS _copy"])
    target = f"IF({VERSION} > 0, shiftright({VERSION}, 1), NULL) AS {TARGET}"
    return select(exploded, ["*", target, _at("_name = 'old'")])


def _use_of(place: str, is_new: int) -> str:
    """The number (SQL) of a result, by its place in old or new rows."""
    return f"2 * ({place}) + {is_new}"


def _at(is_old: str) -> str:
    """The place of a copy, as a named column."""
    until = f"IF({is_old}, _old_until - _old, _new_until - _new)"
    return f"IF({IS_CARRIER}, 0L, {until} + _copy) AS {AT}"


def _with_results(rows: DataFrame, node: Window, latest: LatestRows, texts: Sequence[str] | None) -> DataFrame:
    """Results and running values of each version's rows.

    Parameters
    ----------
    texts : of the results; without them there are none.
    """
    ordered = rows.sortWithinPartitions(*columns_of(node.partition), VERSION, *_total_order(node))
    names = (quoted(e.output.name) for e in node.expressions)
    results = [] if texts is None else [f"{sql} AS {name}" for sql, name in zip(texts, names, strict=True)]
    running = (f"{e.sql} AS {_NEXT}_{n}" for n, e in enumerate(latest.running))
    return select(ordered, ["*", *results, *running])
