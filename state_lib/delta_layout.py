"""Layout of a Delta state table: columns, partitions and properties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from relstate_dagster.state_lib.constants import EPOCH_COLUMN, KEY, TABLE_ID, VNODE, WEIGHT_COLUMN
from relstate_dagster.state_lib.lake.address import table_reference
from relstate_dagster.state_lib.lake.commit import create_plain_table, is_plain
from relstate_dagster.state_lib.row_encoding import parse_type
from relstate_dagster.state_lib.slots import SlotLayout
from relstate_dagster.state_lib.sql_text import property_list
from relstate_dagster.state_lib.table_catalog import descs_to_json
from relstate_dagster.state_lib.table_schema import StateTableDesc

#: The table property that holds the state tables of a Delta state table, so that it explains itself.
TABLES_PROPERTY: Final = "relstate.state_tables"

#: To open a table is to read its newest checkpoint and every commit since, and an epoch opens each several times: after 90
#: commits that takes 17 ms, with a checkpoint every ten commits 5 (delta-rs makes one every hundred by default).
LOG_PROPERTIES: Final = {"delta.checkpointInterval": "10"}

#: Statistics are computed for each file of each epoch; a few leading key columns are what lookups can skip by.
MAX_INDEXED_COLUMNS: Final = 8


def create_state_table(spark: SparkSession, path: str, layout: SlotLayout, descs: Sequence[StateTableDesc]) -> None:
    """Create a view's empty Delta state table (version 0), partitioned by table and vnode."""
    columns = [
        (TABLE_ID, "int"),
        (VNODE, "int"),
        (KEY, "binary"),
        (EPOCH_COLUMN, "bigint"),
        (WEIGHT_COLUMN, "bigint"),
        *((slot.name, slot.data_type) for slot in layout.slots),
    ]
    properties = {
        "delta.dataSkippingStatsColumns": ",".join(indexed_columns(layout, descs)),
        # State is appended and rewritten whole by compaction; nothing is deleted row by row.
        "delta.enableDeletionVectors": "false",
        TABLES_PROPERTY: descs_to_json(descs),
        **LOG_PROPERTIES,
    }
    if is_plain_layout(layout):
        schema = T.StructType([T.StructField(name, parse_type(ddl)) for name, ddl in columns])
        create_plain_table(path, schema, properties, partition_by=[TABLE_ID, VNODE])
        return
    spark.sql(
        f"CREATE TABLE {table_reference(path)} ({', '.join(f'{name} {ddl}' for name, ddl in columns)}) USING delta "
        f"PARTITIONED BY ({TABLE_ID}, {VNODE}) TBLPROPERTIES ({property_list(properties)})"
    )


def is_plain_layout(layout: SlotLayout) -> bool:
    """Whether every slot can be written from Arrow."""
    return all(is_plain(parse_type(slot.data_type)) for slot in layout.slots)


def indexed_columns(layout: SlotLayout, descs: Sequence[StateTableDesc]) -> list[str]:
    """Columns with statistics: epoch, and slots of first key columns."""
    names = [EPOCH_COLUMN]
    for position in range(2):
        for desc, table in zip(descs, layout.tables, strict=True):
            if position < len(desc.schema.storage_key):
                slot = table.of(desc.schema.storage_key[position].column).slot
                if slot is not None and _has_statistics(parse_type(slot.data_type)):
                    names.append(slot.name)
    return list(dict.fromkeys(names))[:MAX_INDEXED_COLUMNS]


def _has_statistics(data_type: T.DataType) -> bool:
    unordered = isinstance(data_type, T.BooleanType | T.BinaryType)
    return isinstance(data_type, T.AtomicType) and is_plain(data_type) and not unordered
