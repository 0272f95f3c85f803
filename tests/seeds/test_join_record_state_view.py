"""*JoinRecordStateView*: what the state of a join's side looks like, and its number of associations."""

from __future__ import annotations

from relstate_dagster.state_lib.table_schema import StateKind, StateTableDesc
from tests.seeds.shown import Shown

_VIEWS = """
CREATE TABLE left_source_table (order_id INT, user_id INT);
CREATE TABLE right_source_table (order_id INT);
INSERT INTO left_source_table VALUES (1, 1), (1, 1), (1, 2), (2, 1);
INSERT INTO right_source_table VALUES (1), (1), (3);
-- view1
-- unique key: order_id & user_id
create view view1 as select order_id, user_id, count(*) as cnt from left_source_table group by order_id, user_id;
-- view2
-- unique key: order_id
create view view2 as select order_id from right_source_table group by order_id;
"""


def _side(shown: Shown, view: str, label: str) -> StateTableDesc:
    (table,) = (t for t in shown.tables(view) if t.schema.label == label)
    return table


def test_query1(shown: Shown) -> None:
    """«left table state: InputSideHasUniqueKey; right table state: JoinKeyContainsUniqueKey»."""
    shown.run(_VIEWS)
    shown.run(
        """
        CREATE MATERIALIZED VIEW query1 AS
        select order_id, user_id, cnt from view1 where order_id in (select order_id from view2)
        """
    )
    assert shown.rows("SELECT * FROM query1") == [(1, 1, 2), (1, 2, 1)]
    # A row has one match at most, and the aggregates have the rows of both sides: the join keeps nothing of its own.
    assert {t.schema.kind for t in shown.tables("query1")} == {StateKind.VALUE_STATE, StateKind.MATERIALIZED_VIEW}
    # A join that has to count matches keeps both sides, in these two forms.
    shown.run(
        """
        CREATE MATERIALIZED VIEW query1_counted AS
        select view1.order_id, user_id, cnt, view2.order_id as other
        from view1 full join view2 on view1.order_id = view2.order_id
        """
    )
    left, right = _side(shown, "query1_counted", "left"), _side(shown, "query1_counted", "right")
    assert (left.schema.kind, right.schema.kind) == (
        StateKind.INPUT_SIDE_HAS_UNIQUE_KEY,
        StateKind.JOIN_KEY_CONTAINS_UNIQUE_KEY,
    )
    # <JK, MapState<UK, Record>>, and <JK, ValueState<Record>>: each with the record's number of associations.
    assert shown.key(left) == ["order_id", "user_id"]
    assert [row[:3] for row in shown.state("query1_counted", left)] == [(1, 1, 2), (1, 2, 1), (2, 1, 1)]
    assert [row[-2:] for row in shown.state("query1_counted", left)] == [(1, 1), (1, 1), (0, 1)]
    assert shown.key(right) == [right.schema.distribution_key[0]]
    assert [(row[0], row[-2]) for row in shown.state("query1_counted", right)] == [(1, 2), (3, 0)]


def test_query2(shown: Shown) -> None:
    """«left table state: InputSideHasNoUniqueKey»: the query does not select the key. Here it is kept hidden."""
    shown.run(
        """
        CREATE MATERIALIZED VIEW query2 AS
        select cnt from view1 where order_id in (select order_id from view2)
        """
    )
    assert shown.rows("SELECT * FROM query2") == [(1,), (2,)]
    (mv,) = shown.tables("query2", StateKind.MATERIALIZED_VIEW)
    assert shown.key(mv) == ["order_id", "user_id"]
    assert shown.state("query2", mv) == [(2, 1, 1, 1), (1, 1, 2, 1)]


def test_appear_times_and_associations_without_a_unique_key(shown: Shown) -> None:
    """«MapState<Record, appear-times>», and «<Record, <appear-times, associated-num>>» of an outer join."""
    shown.run(
        """
        CREATE MATERIALIZED VIEW outer_joined AS
        SELECT l.order_id, l.user_id, r.order_id AS other
        FROM left_source_table l FULL JOIN right_source_table r ON l.order_id = r.order_id
        """
    )
    left, right = _side(shown, "outer_joined", "left"), _side(shown, "outer_joined", "right")
    assert {left.schema.kind, right.schema.kind} == {StateKind.INPUT_SIDE_HAS_NO_UNIQUE_KEY}
    assert shown.key(left) == ["order_id", "user_id"]
    # record, associated-num, appear-times
    assert shown.state("outer_joined", left) == [(1, 1, 2, 2), (1, 2, 2, 1), (2, 1, 0, 1)]
    assert shown.state("outer_joined", right) == [(1, 3, 2), (3, 0, 1)]


def test_records_are_added_retracted_and_associated(shown: Shown) -> None:
    """addRecord, retractRecord and updateNumOfAssociations, as an epoch does them."""
    left, right = _side(shown, "outer_joined", "left"), _side(shown, "outer_joined", "right")
    # One appearance more of a record, one less of another side's, and the last of a third.
    shown.run(
        """
        INSERT INTO left_source_table VALUES (1, 1);
        MERGE INTO right_source_table r USING (SELECT 3 AS order_id) s ON r.order_id = s.order_id
        WHEN MATCHED THEN UPDATE SET order_id = 2;
        DELETE FROM left_source_table WHERE user_id = 2;
        REFRESH
        """
    )
    assert shown.state("outer_joined", left) == [(1, 1, 2, 3), (2, 1, 1, 1)]
    assert shown.state("outer_joined", right) == [(1, 3, 2), (2, 1, 1)]
    # Row 2 has a match now: what was padded with NULLs has gone.
    assert shown.rows("SELECT * FROM outer_joined WHERE order_id = 2") == [(2, 1, 2)]
    assert shown.rows("SELECT * FROM query1") == [(1, 1, 3), (2, 1, 1)]
    shown.verify()


def test_no_join_key(shown: Shown) -> None:
    """«所有记录的 Join Key 都是 BinaryRowUtil.EMPTY_ROW»: without a join key there is the one empty key."""
    shown.run(
        """
        CREATE MATERIALIZED VIEW product AS
        SELECT l.user_id, r.order_id FROM left_source_table l LEFT JOIN right_source_table r ON l.user_id < r.order_id
        """
    )
    left = _side(shown, "product", "left")
    assert (left.schema.prefix_length, left.schema.distribution_key) == (0, ())
    assert left.schema.kind is StateKind.INPUT_SIDE_HAS_NO_UNIQUE_KEY
    assert shown.state("product", left) == [(1, 1, 4)]
    shown.verify()
