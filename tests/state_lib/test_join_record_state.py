"""The three forms of join record state and the association rule (seed JoinRecordStateView). No Spark."""

from __future__ import annotations

import pytest

from state_lib.errors import StateError
from state_lib.join_record_state import (
    NUM_ASSOCIATIONS,
    JoinType,
    association_change,
    form_of,
    join_state_schema,
)
from state_lib.table_schema import MergeRule, StateColumn, StateKind

COLUMNS = [StateColumn("order_id", "bigint"), StateColumn("user_id", "bigint"), StateColumn("cnt", "bigint")]


@pytest.mark.parametrize(
    ("join_key", "unique_key", "form"),
    [
        # query 1 of the seed: view1 joins by order_id, its unique key is (order_id, user_id)
        (["order_id"], ["order_id", "user_id"], StateKind.INPUT_SIDE_HAS_UNIQUE_KEY),
        # … and view2, whose unique key is order_id
        (["order_id"], ["order_id"], StateKind.JOIN_KEY_CONTAINS_UNIQUE_KEY),
        # query 2: user_id is not selected, so nothing is known to be unique
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
    ("join_type", "old_count", "new_count", "weight"),
    [
        (JoinType.OUTER, 0, 1, -1),  # the row padded with NULLs goes
        (JoinType.OUTER, 3, 0, +1),  # … and comes back
        (JoinType.OUTER, 1, 2, 0),
        (JoinType.ANTI, 0, 2, -1),
        (JoinType.ANTI, 1, 0, +1),
        (JoinType.SEMI, 0, 5, +1),
        (JoinType.SEMI, 5, 0, -1),
        (JoinType.SEMI, 5, 4, 0),
        (JoinType.SEMI, 0, 0, 0),
    ],
)
def test_only_the_first_and_the_last_association_change_the_output(
    join_type: JoinType, old_count: int, new_count: int, weight: int
) -> None:
    assert association_change(join_type, old_count, new_count) == weight


def test_a_negative_number_of_associations_is_an_error() -> None:
    with pytest.raises(StateError, match="from 1 to -1"):
        association_change(JoinType.SEMI, 1, -1)
