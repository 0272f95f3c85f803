"""Join record state views on single rows: the semantics of seed ``JoinRecordStateView``, executed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from state_lib.errors import StateError
from state_lib.join_record_state import JoinRecordStateView, OuterRecord, join_state_schema
from state_lib.state_files import StateFiles
from state_lib.state_store import StateStore
from state_lib.state_table import StateTable
from state_lib.table_schema import StateColumn, StateTableDesc

pytestmark = pytest.mark.spark

COLUMNS = [StateColumn("order_id", "int"), StateColumn("user_id", "int"), StateColumn("cnt", "double")]


def state_table(
    spark: SparkSession, path: Path, unique_key: list[str] | None, *, with_associations: bool = False
) -> StateTable:
    schema = join_state_schema("left", COLUMNS, ["order_id"], unique_key, with_associations=with_associations)
    store = StateStore(spark, StateFiles(str(path / "state")), [StateTableDesc(1, schema)])
    store.create()
    return store.state_table(1, epoch=1)


def test_without_a_unique_key_a_record_has_appear_times(spark: SparkSession, tmp_path: Path) -> None:
    table = state_table(spark, tmp_path, None)
    view = JoinRecordStateView(table)
    view.add_record((1, 7, 2.5))
    view.add_record((1, 7, 2.5))
    view.add_record((1, 8, 2.5))
    table.commit(1)
    view.retract_record((1, 7, 2.5))
    assert list(view.records([1])) == [OuterRecord((1, 7, 2.5), 1), OuterRecord((1, 8, 2.5), 1)]
    view.retract_record((1, 7, 2.5))
    assert list(view.records([1])) == [OuterRecord((1, 8, 2.5), 1)]
    assert list(view.records([2])) == []
    with pytest.raises(StateError, match=r"epoch 2: record \(1, 7, 2.5\) is retracted but is not there"):
        view.retract_record((1, 7, 2.5))
    JoinRecordStateView(table, ttl=True).retract_record((1, 7, 2.5))
    with pytest.raises(StateError, match="keeps no number of associations"):
        view.update_num_of_associations((1, 8, 2.5), 1)


def test_with_a_unique_key_a_key_has_one_record(spark: SparkSession, tmp_path: Path) -> None:
    table = state_table(spark, tmp_path, ["order_id", "user_id"])
    view = JoinRecordStateView(table)
    view.add_record((1, 7, 2.5))
    view.add_record((1, 8, 3.5))
    with pytest.raises(StateError, match="whose key is there already"):
        view.add_record((1, 7, 9.0))
    # A retraction names the record: another value under the same key was never added.
    with pytest.raises(StateError, match="is not there"):
        view.retract_record((1, 7, 9.0))
    view.retract_record((1, 7, 2.5))
    assert [r.record for r in view.records([1])] == [(1, 8, 3.5)]


def test_the_outer_form_keeps_the_number_of_associations(spark: SparkSession, tmp_path: Path) -> None:
    table = state_table(spark, tmp_path, None, with_associations=True)
    view = JoinRecordStateView(table)
    view.add_record((1, 7, 2.5), 0)
    view.add_record((1, 7, 2.5), 3)
    table.commit(1)
    assert list(view.records([1])) == [OuterRecord((1, 7, 2.5), appear_times=2, num_associations=3)]
    view.update_num_of_associations((1, 7, 2.5), 4)
    view.retract_record((1, 7, 2.5))
    table.commit(2)
    assert list(view.records([1])) == [OuterRecord((1, 7, 2.5), appear_times=1, num_associations=4)]
    with pytest.raises(StateError, match="has associations but is not there"):
        view.update_num_of_associations((2, 2, 2.0), 1)
    # Where state expires, a record that is gone is there again, once.
    JoinRecordStateView(table, ttl=True).update_num_of_associations((2, 2, 2.0), 1)
    assert list(view.records([2])) == [OuterRecord((2, 2, 2.0), appear_times=1, num_associations=1)]
