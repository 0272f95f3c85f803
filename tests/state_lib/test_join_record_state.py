"""The three forms of join record state and the association rule. No Spark."""

from __future__ import annotations

import pytest

from relstate_dagster.jobs.plan.nodes import JOIN_TYPES
from relstate_dagster.state_lib.join_record_state import (
    EMITTED_ALONE,
    NUM_ASSOCIATIONS,
    Counted,
    emission_change,
    form_of,
    join_state_schema,
)
from relstate_dagster.state_lib.table_schema import MergeRule, StateColumn, StateKind

COLUMNS = [StateColumn("order_id", "bigint"), StateColumn("user_id", "bigint"), StateColumn("cnt", "bigint")]


@pytest.mark.parametrize(
    ("join_key", "unique_key", "form"),
    [
        # view1 joins by order_id, its unique key is (order_id, user_id)
        (["order_id"], ["order_id", "user_id"], StateKind.INPUT_SIDE_HAS_UNIQUE_KEY),
        # … and view2, whose unique key is order_id
        (["order_id"], ["order_id"], StateKind.JOIN_KEY_CONTAINS_UNIQUE_KEY),
        # user_id is not selected, so nothing is known to be unique
        (["order_id"], None, StateKind.INPUT_SIDE_HAS_NO_UNIQUE_KEY),
        # a cartesian product; and a side of at most one row
        ([], None, StateKind.INPUT_SIDE_HAS_NO_UNIQUE_KEY),
        (["order_id"], [], StateKind.JOIN_KEY_CONTAINS_UNIQUE_KEY),
    ],
)
def test_the_form_follows_from_what_is_unique(join_key: list[str], unique_key: list[str] | None, form: StateKind) -> None:
    assert form_of(join_key, unique_key) is form
    assert join_state_schema("left", COLUMNS, join_key, unique_key, with_associations=False).kind is form


@pytest.mark.parametrize(
    ("unique_key", "storage_key"),
    [
        (["order_id"], ["order_id"]),
        (["user_id", "order_id"], ["order_id", "user_id"]),
        (None, ["order_id", "user_id", "cnt"]),
    ],
)
def test_storage_primary_key(unique_key: list[str] | None, storage_key: list[str]) -> None:
    schema = join_state_schema("left", COLUMNS, ["order_id", "order_id"], unique_key, with_associations=True)
    assert [part.column for part in schema.storage_key] == storage_key
    assert (schema.prefix_length, schema.distribution_key, schema.merge) == (1, ("order_id",), MergeRule.SUM)
    assert schema.columns[-1] == StateColumn(NUM_ASSOCIATIONS, "bigint")


def test_a_cartesian_product_is_a_singleton_and_maps_stay_out_of_the_key() -> None:
    columns = [StateColumn("a", "int"), StateColumn("m", "map<string,int>"), StateColumn("s", "array<map<int,int>>")]
    schema = join_state_schema("right", columns, [], None, with_associations=False)
    assert [part.column for part in schema.storage_key] == ["a"]
    assert (schema.prefix_length, schema.distribution_key) == (0, ())


@pytest.mark.parametrize(
    ("join_type", "old", "new", "weights"),
    [
        ("left outer", (1, 0), (1, 1), [-1]),  # the row padded with NULLs goes
        ("full outer", (2, 3), (2, 0), [+2]),  # … and comes back, as often as the record is there
        ("right outer", (1, 1), (1, 2), [0]),
        ("left outer", (0, 0), (3, 0), [+3]),
        ("left anti", (1, 0), (1, 2), [-1]),
        ("left anti", (1, 1), (2, 0), [+2]),
        ("left semi", (1, 0), (1, 5), [+1]),
        ("left semi", (1, 5), (1, 0), [-1]),
        ("left semi", (1, 5), (1, 4), [0]),
        ("left semi", (4, 1), (1, 2), [-3]),
        ("existence", (1, 0), (1, 2), [-1, +1]),
        ("existence", (2, 1), (0, 1), [0, -2]),
    ],
)
def test_only_the_first_and_the_last_association_change_the_output(
    join_type: str, old: tuple[int, int], new: tuple[int, int], weights: list[int]
) -> None:
    def where(condition: bool, weight: int) -> int:
        return weight if condition else 0

    changes = [emission_change(Counted(*old), Counted(*new), associated=a, where=where) for a in EMITTED_ALONE[join_type]]
    assert changes == weights


def test_every_join_that_counts_has_its_rule() -> None:
    assert set(EMITTED_ALONE) == set(JOIN_TYPES) - {"inner"}
