"""The Delta table that a view is published to: its columns, layout, comments and properties."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.declare.table_properties import DELETION_VECTORS
from relstate_dagster.jobs.targets.declared_table import DeclaredTable
from relstate_dagster.state_lib.compaction import has_many_runs, merge_small_runs
from relstate_dagster.state_lib.constants import VIEW_KEY
from relstate_dagster.state_lib.delta_layout import LOG_PROPERTIES
from relstate_dagster.state_lib.lake.address import table_reference
from relstate_dagster.state_lib.lake.commit import create_plain_table, is_plain, is_writable
from relstate_dagster.state_lib.lake.statistics import data_files
from relstate_dagster.state_lib.lake.table import DeltaTable, OpenedTable
from relstate_dagster.state_lib.row_encoding import parse_type
from relstate_dagster.state_lib.sql_text import property_list, quoted, text_literal

_REFUSED_BY_DELTA = set(" ,;{}()\n\t=")


def create_view_table(session: SparkSession, path: str, declared: DeclaredTable) -> None:
    """Create a view's empty Delta table with change data feed and declared layout."""
    layout = declared.layout
    properties = {"delta.enableChangeDataFeed": "true", **LOG_PROPERTIES, **declared.properties}
    if layout.partitioned_by:
        # Or Spark names folders by values, as they are: delta-rs escapes letters that are not ASCII when it removes a file, and
        # so removes none.
        properties["delta.randomizeFilePrefixes"] = "true"
    comments = _comments(declared)
    # delta-rs declares VARIANT beside deletion vectors, which fewer readers know.
    if written_by_driver(declared) and properties.get(DELETION_VECTORS) != "true":
        fields = [(name, parse_type(ddl)) for name, ddl in declared.columns]
        schema = T.StructType(
            [
                T.StructField(name, data_type, metadata={"comment": comments[name]} if name in comments else None)
                for name, data_type in [*fields, (VIEW_KEY, T.BinaryType())]
            ]
        )
        create_plain_table(path, schema, properties, partition_by=layout.partitioned_by, comment=declared.comment)
        return
    columns = [
        f"{quoted(name)} {ddl}" + (f" COMMENT {text_literal(comments[name])}" if name in comments else "")
        for name, ddl in [*declared.columns, (VIEW_KEY, "BINARY")]
    ]
    if any(set(name) & _REFUSED_BY_DELTA for name, _ in declared.columns):
        properties["delta.columnMapping.mode"] = "name"
    comment = f" COMMENT {text_literal(declared.comment)}" if declared.comment else ""
    partitioned = f" PARTITIONED BY ({', '.join(map(quoted, layout.partitioned_by))})" if layout.partitioned_by else ""
    clustered = f" CLUSTER BY ({', '.join(map(quoted, layout.cluster_by))})" if layout.cluster_by else ""
    session.sql(
        f"CREATE TABLE IF NOT EXISTS {table_reference(path)} ({', '.join(columns)}) USING delta"
        f"{partitioned}{clustered}{comment} TBLPROPERTIES ({property_list(properties)})"
    )


def _comments(declared: DeclaredTable) -> dict[str, str]:
    return {**declared.layout.column_comments, VIEW_KEY: "identity of the row, not part of the view"}


def written_by_driver(declared: DeclaredTable) -> bool:
    """Whether the view's columns have names and types that can be written without Spark."""
    plain = all(is_plain(parse_type(ddl)) for _, ddl in declared.columns)
    return plain and not declared.layout.cluster_by and not any(set(name) & _REFUSED_BY_DELTA for name, _ in declared.columns)


def driver_writes(declared: DeclaredTable, table: DeltaTable) -> bool:
    """Whether the view's rows can be written to its table, as opened, without Spark."""
    return written_by_driver(declared) and is_writable(table)


def has_layout(table: OpenedTable, declared: DeclaredTable) -> bool:
    """Whether a table is partitioned as declared.

    Tables with clusters, or without, are made again.
    """
    metadata = table.latest().metadata()
    is_clustered = "clustering" in (table.latest().protocol().writer_features or ())
    same_partitions = tuple(metadata.partition_columns) == declared.layout.partitioned_by
    return same_partitions and not is_clustered and not declared.layout.cluster_by


def commented(rows: DataFrame, declared: DeclaredTable) -> DataFrame:
    """Rows with the comments of their columns, which a table takes with its columns."""
    comments = _comments(declared)
    return rows.select(
        *(F.col(quoted(c)).alias(c, metadata={"comment": comments[c]} if c in comments else {}) for c in rows.columns)
    )


def set_properties(session: SparkSession, table: OpenedTable, declared: DeclaredTable) -> bool:
    """Set table properties that its view declares by now.

    Returns whether that took a commit.
    """
    there = table.opened().metadata().configuration
    changed = {name: value for name, value in declared.properties.items() if there.get(name) != value}
    if changed:
        session.sql(f"ALTER TABLE {table_reference(table.path)} SET TBLPROPERTIES ({property_list(changed)})")
    return bool(changed)


def merge_small_files(table: OpenedTable, declared: DeclaredTable) -> None:
    """Merge small files of a published table, in a commit that changes no rows.

    Each epoch that only appends leaves one. Tables with clusters, or names that the driver cannot write, are left to OPTIMIZE.
    """
    opened = table.opened()
    if driver_writes(declared, opened) and has_many_runs(data_files(opened)):
        merge_small_runs(table)
