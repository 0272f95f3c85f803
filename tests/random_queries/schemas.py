"""Hypothesis strategies for small schemas, and for histories of changes over the relations of one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

from hypothesis import strategies as st

from relstate_dagster.jobs.plan.nodes import Field
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.state_lib.constants import ROW_ID
from tests.operators.histories import Source

Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]

#: Few values of each type, so that keys meet; without -0.0, of which Spark may show either sign.
VALUES: Mapping[str, list[Any]] = {
    "int": [0, 1, 2, 7],
    "bigint": [0, 2, -3, 2**40],
    "string": ["", "a", "b", "a\x00b", "😀", 'it\'s\n"a"', "\u2028\\n"],
    "decimal(10,2)": [Decimal("0.00"), Decimal("1.50"), Decimal("-2.25")],
    "decimal(38,2)": [Decimal("0.00"), Decimal("12345678901234567890123456789.05"), Decimal("-0.01")],
    "date": [date(1969, 12, 31), date(2024, 2, 29), date(2024, 3, 1)],
    "boolean": [False, True],
    "timestamp": [datetime(2024, 2, 29, 23, 59, 59), datetime(1969, 12, 31, 1)],
    "double": [0.0, 1.5, -2.25, math.nan],
    "struct<x:int,y:string>": [(1, "a"), (None, "b"), (1, None)],
    "array<int>": [(), (1, None), (2,), (None,)],
}
_KEY_TYPES = ("int", "int", "bigint", "string", "date")


@st.composite
def schemas(draw: Draw) -> dict[str, Relation]:
    """Two to four relations: with a key of one or two columns, multisets, and append-only ones without a key."""
    kinds = draw(st.lists(st.sampled_from([1, 1, 2, "multiset", "append only"]), min_size=2, max_size=4))
    return {name: draw(_relations(name, kind)) for name, kind in zip(("ra", "rb", "rc", "rd"), kinds, strict=False)}


@st.composite
def _relations(draw: Draw, name: str, kind: int | str) -> Relation:
    key = tuple(Field(f"k{n}", draw(st.sampled_from(_KEY_TYPES)), False) for n in range(kind if isinstance(kind, int) else 0))
    types = draw(st.lists(st.sampled_from(["int", "string", *VALUES]), min_size=1, max_size=3))
    columns = (*key, *(Field(f"c{n}", data_type) for n, data_type in enumerate(types)))
    if key:
        return Relation(name, columns, tuple(f.name for f in key))
    if kind == "multiset":
        return Relation(name, columns)
    return Relation(name, columns, (ROW_ID,), True, (Field(ROW_ID, "bigint", False),))


@st.composite
def histories_of(draw: Draw, relations: Mapping[str, Relation]) -> list[list[Any]]:
    """Two to four epochs of up to ten operations each, as :class:`tests.operators.histories.Source` takes them."""
    operations = st.one_of([_operations(relation) for relation in relations.values()])
    return draw(st.lists(st.lists(operations, max_size=10), min_size=2, max_size=4))  # type: ignore[no-any-return]


@st.composite
def _operations(draw: Draw, relation: Relation) -> tuple[str, Any, Any]:
    keys = [f for f in relation.columns if relation.key and f.name in relation.key]
    row = tuple(draw(st.sampled_from([None, *VALUES[f.data_type]])) for f in relation.columns if f not in keys)
    if keys:
        key = tuple(draw(st.sampled_from(VALUES[f.data_type])) for f in keys)
        return relation.name, key, None if draw(st.integers(0, 3)) == 0 else row
    return relation.name, None if relation.append_only else draw(st.booleans()), row


def source_of(relations: Mapping[str, Relation]) -> Source:
    """A source that holds the rows of these relations."""
    keyed = [name for name, r in relations.items() if r.key and not r.append_only]
    bags = [name for name, r in relations.items() if r.key is None]
    return Source(keyed, bags, [name for name, r in relations.items() if r.append_only])
