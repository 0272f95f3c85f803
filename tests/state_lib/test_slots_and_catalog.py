from __future__ import annotations

import json

import pytest

from relstate_dagster.state_lib.delta_layout import indexed_columns
from relstate_dagster.state_lib.errors import PlanError, StateError, WarehouseError
from relstate_dagster.state_lib.lake.address import table_reference
from relstate_dagster.state_lib.slots import Slot, assign_slots
from relstate_dagster.state_lib.table_catalog import TableCatalog, desc_from_dict, desc_to_dict, descs_to_json
from relstate_dagster.state_lib.table_schema import KeyPart, MergeRule, StateColumn, StateKind, StateTableSchema


def table(label: str, columns: dict[str, str], key: tuple[str, ...] = ()) -> StateTableSchema:
    return StateTableSchema(
        label,
        StateKind.VALUE_STATE,
        tuple(StateColumn(name, ddl) for name, ddl in columns.items()),
        tuple(KeyPart(name, descending=True) for name in key),
        len(key),
        key,
        MergeRule.SUM,
    )


LEFT = table("left", {"id": "bigint", "price": "decimal(15,2)", "parent": "bigint"}, ("id",))
RIGHT = table("right", {"name": "string", "n": "long", "fee": "DECIMAL(15, 2)", "tax": "decimal(15,2)"}, ("name", "n"))


def test_tables_share_slots_by_type() -> None:
    layout = assign_slots([LEFT, RIGHT])
    assert [slot.name for slot in layout.slots] == [
        "bigint_1", "bigint_2", "decimal_15_2_1", "decimal_15_2_2", "string_1",
    ]  # fmt: skip
    left, right = layout.tables
    assert {c.name: c.slot.name for c in left.columns if c.slot} == {
        "id": "bigint_1", "price": "decimal_15_2_1", "parent": "bigint_2",
    }  # fmt: skip
    assert {c.name: c.slot.name for c in right.columns if c.slot} == {
        "name": "string_1", "n": "bigint_1", "fee": "decimal_15_2_1", "tax": "decimal_15_2_2",
    }  # fmt: skip


def test_complex_types_are_told_apart_by_a_hash() -> None:
    names = [
        assign_slots([table("t", {"c": ddl})]).slots[0].name
        for ddl in ("struct<a:int,b:array<string>>", "struct<a:int,b:array<bigint>>", "map<string,int>")
    ]
    assert names[0] == assign_slots([table("u", {"x": "STRUCT<a: INT, b: ARRAY<STRING>>"})]).slots[0].name
    assert len(set(names)) == 3
    assert all(len(name) < 40 and name.isidentifier() for name in names)


def test_what_delta_cannot_store_is_stored_otherwise_or_refused() -> None:
    columns = (
        assign_slots([table("t", {"y": "interval year", "d": "interval day to second", "v": "void", "c": "varchar(3)"})])
        .tables[0]
        .columns
    )
    assert [c.slot for c in columns] == [
        Slot("int_1", "int"),
        Slot("bigint_1", "bigint"),
        None,
        Slot("string_1", "string"),
    ]
    for ddl in ("struct<a:interval day>", "string collate UTF8_LCASE", "array<void>"):
        with pytest.raises(PlanError, match="column c: Delta"):
            assign_slots([table("t", {"c": ddl})])


def test_hidden_names_are_reserved() -> None:
    with pytest.raises(PlanError, match="_weight is reserved"):
        assign_slots([table("t", {"_weight": "int"})])
    assert assign_slots([table("t", {"weight": "int", "epoch": "int", "key": "int"})]).slots[-1].name == "int_3"


def test_statistics_are_kept_for_the_epoch_and_leading_key_columns() -> None:
    (left, right, odd), _ = TableCatalog().allocate([LEFT, RIGHT, table("odd", {"b": "boolean"}, ("b",))])
    layout = assign_slots([d.schema for d in (left, right, odd)])
    assert indexed_columns(layout, [left, right, odd]) == ["epoch", "bigint_1", "string_1"]


def test_a_path_that_sql_cannot_name_is_refused() -> None:
    with pytest.raises(StateError, match="backtick"):
        table_reference("/a`b")


def test_table_ids_follow_the_walk_and_are_never_reused() -> None:
    first, catalog = TableCatalog().allocate([LEFT, RIGHT])
    second, catalog = catalog.allocate([LEFT], [16])
    assert [d.table_id for d in (*first, *second)] == [1, 2, 3]
    assert [d.vnode_count for d in (*first, *second)] == [1, 1, 16]
    assert TableCatalog.from_dict(json.loads(json.dumps(catalog.to_dict()))) == TableCatalog(4)
    with pytest.raises(PlanError, match="power of two"):
        catalog.allocate([LEFT], [3])


def test_descriptions_survive_json() -> None:
    descs, _ = TableCatalog(40).allocate([LEFT, RIGHT], [4, 8])
    assert tuple(map(desc_from_dict, json.loads(descs_to_json(descs)))) == descs
    assert desc_from_dict(json.loads(json.dumps(desc_to_dict(descs[0])))) == descs[0]
    with pytest.raises(WarehouseError, match="not the description"):
        desc_from_dict({"table_id": 1})
