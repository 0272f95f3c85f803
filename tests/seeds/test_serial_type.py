"""*Serial type and consistent hash based RowID generator*: row ids that carry their vnode."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from relstate_dagster.jobs.plan.explain import explain_plan
from relstate_dagster.state_lib import state_store
from relstate_dagster.state_lib.constants import ROW_ID
from relstate_dagster.state_lib.serial import SEQUENCE_BITS, TIME_BITS, VNODE_BITS
from relstate_dagster.state_lib.table_schema import StateKind
from relstate_dagster.state_lib.vnode import table_vnode
from tests.seeds.shown import Shown
from tests.serials import Serial
from tests.sizes import Resized


def test_the_bits_of_a_row_id() -> None:
    """«timestamp 41 bits | vnode id 10 bits | sequence 12 bits»."""
    assert (TIME_BITS, VNODE_BITS, SEQUENCE_BITS) == (41, 10, 12)
    row_id = int(Serial(time_ms=5, vnode=3, sequence=7))
    assert row_id == 5 << 22 | 3 << 12 | 7
    assert Serial.from_int(row_id) == Serial(5, 3, 7)


def test_an_append_only_stream_has_row_ids_for_its_key(shown: Shown) -> None:
    """«for each append-only stream, we generate an ID for each row […] and use the hidden column as the source stream key»."""
    shown.run(
        """
        CREATE TABLE clicks (page STRING, ms INT) TBLPROPERTIES ('delta.appendOnly' = 'true');
        INSERT INTO clicks VALUES ('/', 3), ('/', 3), ('/about', 5);
        CREATE MATERIALIZED VIEW slow AS SELECT page, ms FROM clicks WHERE ms >= 3;
        """
    )
    (mv,) = shown.tables("slow", StateKind.MATERIALIZED_VIEW)
    assert shown.key(mv) == [ROW_ID]
    # The distribution is by _row_id, and is read from it: nothing is hashed.
    assert mv.schema.distribution_key == (ROW_ID,)
    assert "crc32" not in str(table_vnode(mv.schema, 8))
    explained = explain_plan(shown.warehouse.read().views["slow"].plan)
    # «each operator should have a known distribution […]. In the source, the distribution is `HashShard([_row_id])`».
    assert "Scan clicks  [stream key (_row_id); append-only; distribution vnode of _row_id;" in explained
    assert "Exchange" not in explained
    first = shown.state("slow", mv)
    assert [(page, ms, weight) for page, ms, _, weight in first] == [("/", 3, 1), ("/", 3, 1), ("/about", 5, 1)]
    assert len({row_id for _, _, row_id, _ in first}) == 3
    # The hidden column is not one of the view's.
    assert shown.rows("SELECT * FROM slow") == [("/", 3), ("/", 3), ("/about", 5)]

    shown.run("INSERT INTO clicks VALUES ('/', 3); REFRESH")
    later = shown.state("slow", mv)
    assert [row for row in later if row in first] == first
    assert len({row[2] for row in later}) == 4
    shown.verify()


def test_rows_are_written_with_no_exchange_after_the_source(
    shown: Shown, resized: Resized, monkeypatch: pytest.MonkeyPatch
) -> None:
    """«The source executors always generate `_row_id` that has already satisfied `HashShard[_row_id]`».

    So nothing that is executed has an exchange, be it for the driver to commit or for Spark.
    """
    by_driver, by_spark = list[str](), list[str]()

    def noted(frame: DataFrame, plans: list[str]) -> DataFrame:
        plans.append(frame._jdf.queryExecution().executedPlan().toString())
        return frame

    arranged, collected = state_store._arranged, state_store.collected
    monkeypatch.setattr(state_store, "_arranged", lambda *given: noted(arranged(*given), by_spark))
    monkeypatch.setattr(state_store, "collected", lambda frame, most: collected(noted(frame, by_driver), most))
    shown.run(
        """
        CREATE TABLE taps (page STRING, ms INT) TBLPROPERTIES ('delta.appendOnly' = 'true');
        INSERT INTO taps SELECT concat('/', id % 7), id FROM range(0, 20000, 1, 4);
        CREATE MATERIALIZED VIEW quick AS SELECT upper(page) AS page, ms FROM taps WHERE ms >= 3;
        """
    )
    shown.run("INSERT INTO taps VALUES ('/small', 5); REFRESH")
    # As if the changes were too large for the driver, and the state for one vnode.
    resized(driver_change_bytes=0, driver_backfill_bytes=0, driver_commit_bytes=0, driver_commit_rows=0, vnode_bytes=20_000)
    shown.run("INSERT INTO taps SELECT '/large', id FROM range(0, 30000, 1, 4); REFRESH")
    shown.run("INSERT INTO taps SELECT '/large', id FROM range(0, 30000, 1, 4); REFRESH")
    assert len(by_driver) == 2
    assert len(by_spark) == 2
    assert [plan for plan in (*by_driver, *by_spark) if "Exchange" in plan] == []
    shown.verify()
    (mv,) = shown.tables("quick", StateKind.MATERIALIZED_VIEW)
    assert mv.vnode_count > 1
    found = shown.state("quick", mv)
    assert len(found) == 20_000 - 3 + 1 + 2 * (30_000 - 3)
    assert len({row_id for _, _, row_id, _ in found}) == len(found)
