"""Columns of a folder of files: declared ones, tried on a file, or inferred."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from relstate_dagster.jobs.declare.file_folders import with_required_key
from relstate_dagster.jobs.declare.model import FileFolder, SourceDeclaration, source_column
from relstate_dagster.jobs.engine.spark_connect import new_session
from relstate_dagster.jobs.sources.file_records import FileRecords, partition_names
from relstate_dagster.jobs.sources.folder_files import OLDEST_FIRST, full_paths, listing
from relstate_dagster.state_lib.constants import HIDDEN_COLUMNS
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.lake.folders import is_table

#: Columns are inferred from the oldest files, up to this many.
_INFERRED_FROM: Final = 10_000


def with_columns(spark: SparkSession, source: SourceDeclaration, folder: FileFolder) -> SourceDeclaration:
    """A declared folder with its columns, for the table of its rows to be made.

    Raises
    ------
    SourceError : there is no such folder.
    DeclarationError : it is a Delta table; Spark cannot read such columns from such files; or none are listed, and there is no
        file to say.
    """
    if is_table(folder.location):
        raise DeclarationError(f"source {source.name}: {folder.location} is a Delta table; declare it USING delta")
    paths = listing(source.name, folder).sort_by(OLDEST_FIRST)["path"].to_pylist()
    schema = _struct(source.columns_ddl)
    reader = FileRecords(new_session(spark), folder, schema, partition_names(paths))
    try:
        if source.columns:
            if paths:
                reader.records(full_paths(folder, paths[:1])).isEmpty()
            return source
        if not paths:
            raise DeclarationError(
                f"source {source.name}: no columns are listed, and {folder.location} has no file yet to say which there are; "
                "list them"
            )
        found = reader.inferred(full_paths(folder, paths[:_INFERRED_FROM]))
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        raise DeclarationError(f"source {source.name}: Spark cannot read {folder.location} as declared: {reason}") from error
    reserved = sorted(HIDDEN_COLUMNS & {name.lower() for name in found.names})
    if reserved:
        raise DeclarationError(
            f"source {source.name}: files have a column {', '.join(reserved)}, a reserved name; list the columns"
        )
    columns = tuple(source_column(f.name, f.dataType.simpleString()) for f in found.fields)
    return with_required_key(replace(source, columns=columns))


def _struct(ddl: str) -> T.StructType:
    schema = T.StructType.fromDDL(ddl) if ddl else T.StructType()
    assert isinstance(schema, T.StructType)
    return schema
