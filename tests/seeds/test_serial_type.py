"""*Serial type and consistent hash based RowID generator*: row ids that carry their vnode."""

from __future__ import annotations

from relstate_dagster.state_lib.constants import ROW_ID
from relstate_dagster.state_lib.serial import SEQUENCE_BITS, TIME_BITS, VNODE_BITS, Serial
from relstate_dagster.state_lib.table_schema import StateKind
from relstate_dagster.state_lib.vnode import table_vnode
from tests.seeds.shown import Shown


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
