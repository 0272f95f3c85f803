"""Join record state: rows of one join side, in one of three forms.

=========================  ===============================  =======================================
form                       storage primary key              value
=========================  ===============================  =======================================
JoinKeyContainsUniqueKey   join key                         record
InputSideHasUniqueKey      join key, rest of unique key     record
InputSideHasNoUniqueKey    join key, rest of the record     appear times (the weight)
=========================  ===============================  =======================================

With no join key (a cartesian product) the join key is the empty row, and the table a singleton. The outer forms also
keep each record's number of associations, in the column ``_num_associations``. All are merged by sum: a record is
retracted by its own tombstone, and a changed count is a retraction under the old and an insertion under the new count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from relstate_dagster.state_lib.sql_type import sql_type
from relstate_dagster.state_lib.table_schema import KeyPart, MergeRule, StateColumn, StateKind, StateTableSchema

#: Rows of the other side that a record is associated with.
NUM_ASSOCIATIONS: Final = "_num_associations"


def form_of(join_key: Sequence[str], unique_key: Sequence[str] | None) -> StateKind:
    """Which of the three forms a side takes.

    Parameters
    ----------
    join_key : the side's columns in the join's equalities.
    unique_key : the side's stream key; None where it has none, empty where it has at most one row.
    """
    if unique_key is None:
        return StateKind.INPUT_SIDE_HAS_NO_UNIQUE_KEY
    if set(unique_key) <= set(join_key):
        return StateKind.JOIN_KEY_CONTAINS_UNIQUE_KEY
    return StateKind.INPUT_SIDE_HAS_UNIQUE_KEY


def join_state_schema(
    label: str,
    columns: Sequence[StateColumn],
    join_key: Sequence[str],
    unique_key: Sequence[str] | None,
    *,
    with_associations: bool,
) -> StateTableSchema:
    """The state table of one side of a join.

    Parameters
    ----------
    label : ``left`` or ``right``.
    columns : the columns of the side.
    join_key : its columns in the join's equalities; empty for a cartesian product.
    unique_key : its stream key, or None.
    with_associations : whether the join's type depends on how many rows a record is associated with.
    """
    form = form_of(join_key, unique_key)
    leading = tuple(dict.fromkeys(join_key))
    if unique_key is not None:
        rest = [name for name in unique_key if name not in leading]
    else:
        # A map has no order, so it stays out of the key; rows that differ in it alone are kept apart when merged.
        rest = [c.name for c in columns if c.name not in leading and not sql_type(c.data_type).has_maps]
    extra = (StateColumn(NUM_ASSOCIATIONS, "bigint"),) if with_associations else ()
    return StateTableSchema(
        label=label,
        kind=form,
        columns=(*columns, *extra),
        storage_key=tuple(KeyPart(name) for name in dict.fromkeys((*leading, *rest))),
        prefix_length=len(leading),
        distribution_key=leading,
        merge=MergeRule.SUM,
    )


#: By the type of a join, when a record of a counted side is in the output by itself: where it has associations, where it has
#: none, or both. For an outer join that is its row padded with NULLs; pairs are the inner part's business.
EMITTED_ALONE: Final[Mapping[str, tuple[bool, ...]]] = {
    "left outer": (False,),
    "right outer": (False,),
    "full outer": (False,),
    "left semi": (True,),
    "left anti": (False,),
    "existence": (False, True),
}


class Counted(NamedTuple):
    """Appearances and associations of a record, as numbers or Spark columns."""

    appear_times: Any
    num_associations: Any


def emission_change(old: Counted, new: Counted, *, associated: bool, where: Callable[[Any, Any], Any]) -> Any:
    """The weight by which a record that is emitted alone changes in the output.

    Only 0 → n and n → 0 associations, and its own coming and going, change anything. An outer or anti join loses the
    record's row when the first association comes and gets it back when the last one goes. A semi join does the opposite.

    Parameters
    ----------
    associated : one of :data:`EMITTED_ALONE`.
    where : its second argument where the first one is true, else 0; for numbers or for Spark columns.
    """

    def emitted(record: Counted) -> Any:
        return where((record.num_associations > 0) == associated, record.appear_times)

    return emitted(new) - emitted(old)
