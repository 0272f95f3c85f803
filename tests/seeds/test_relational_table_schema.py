"""*Relational Table Schema*: which state tables aggregates have, and what is in them."""

from __future__ import annotations

from relstate_dagster.state_lib.table_schema import StateKind
from tests.seeds.shown import Shown

_ROWS = "(1, 10, 5), (1, 10, NULL), (1, 30, 7), (2, 5, 1)"


def test_value_state(shown: Shown) -> None:
    """«This query will need to initiate 2 Relational Tables. The schema is table_id/group_key.»

    Here one table has the state of both calls, in a row for each group: a row for each group and call took half of the time
    of a backfill. RisingWave has one table, too, by now.
    """
    shown.run(
        f"""
        CREATE TABLE t (v1 INT, v2 INT, v3 INT);
        INSERT INTO t VALUES {_ROWS};
        CREATE MATERIALIZED VIEW sums AS
        select sum(v2), count(v3) from t group by v1
        """
    )
    (values,) = shown.tables("sums", StateKind.VALUE_STATE)
    assert values.schema.label == "sum(v2), count(v3)"
    assert shown.key(values) == ["v1"]
    # A sum also counts what it has summed, since a sum of nothing is NULL; the rows of the group are counted, too.
    assert [c.name for c in values.schema.columns] == ["v1", "_sum", "_count_0", "_count_1", "_group_rows"]
    assert shown.state("sums", values) == [(1, 50, 3, 2, 3), (2, 5, 1, 1, 1)]


def test_extreme_state(shown: Shown) -> None:
    """«If the upstream is not append-only, the schema becomes table_id/group_key/sort_key/upstream_pk.»"""
    # One value a group is kept in value state; a group that has no others has no counts.
    shown.run(
        "CREATE MATERIALIZED VIEW extremes TBLPROPERTIES ('state.extreme_rows' = '1') AS\n"
        "select max(v2), min(v3) from t group by v1"
    )
    high, low = shown.tables("extremes", StateKind.EXTREME_STATE)
    # The first row of a group is the extreme. Equal values share a row, which counts them: no upstream key.
    assert [shown.key(high), shown.key(low)] == [["v1", "_value_0 desc"], ["v1", "_value_0"]]
    assert shown.state("extremes", high) == [(1, 30, 1), (1, 10, 2)]
    assert shown.state("extremes", low) == [(1, 5, 1), (1, 7, 1)]


def test_extremes_of_an_append_only_input(shown: Shown) -> None:
    """«If t is created with append-only flag, the schema becomes table_id/group_key, which is the same for Value State.»"""
    shown.run(
        f"""
        CREATE TABLE appended (v1 INT, v2 INT, v3 INT) TBLPROPERTIES ('delta.appendOnly' = 'true');
        INSERT INTO appended VALUES {_ROWS};
        CREATE MATERIALIZED VIEW extremes_appended AS
        select max(v2), min(v3) from appended group by v1
        """
    )
    assert shown.tables("extremes_appended", StateKind.EXTREME_STATE) == []
    (values,) = shown.tables("extremes_appended", StateKind.VALUE_STATE)
    assert values.schema.label == "max(v2), min(v3)"
    assert shown.key(values) == ["v1"]
    assert [row[:3] for row in shown.state("extremes_appended", values)] == [(1, 30, 5), (2, 5, 1)]


def test_deleted_extremes_are_found_again(shown: Shown) -> None:
    """«The streaming executor will try to write all streaming data to storage, because there may be update or delete.»"""
    shown.run("DELETE FROM t WHERE v2 = 30; UPDATE t SET v3 = 9 WHERE v1 = 2; INSERT INTO appended VALUES (2, 6, 0); REFRESH")
    assert shown.rows("SELECT * FROM sums") == [(20, 1), (5, 1)]
    assert shown.rows("SELECT * FROM extremes") == [(10, 5), (5, 9)]
    assert shown.rows("SELECT * FROM extremes_appended") == [(30, 5), (6, 0)]
    high, low = shown.tables("extremes", StateKind.EXTREME_STATE)
    assert shown.state("extremes", high) == [(1, 10, 2)]
    assert shown.state("extremes", low) == [(1, 5, 1)]
    shown.verify()


def test_table_ids(shown: Shown) -> None:
    """«For all relational table states, the keyspace must start with table_id. This is a globally unique id.»"""
    ids = [t.table_id for view in shown.warehouse.read().views for t in shown.tables(view)]
    assert len(ids) == len(set(ids))
