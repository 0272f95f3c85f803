"""The columns of a folder of files: as declared, tried on a file that is there, or inferred once."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from relstate_dagster.jobs.declare.model import FileFolder, SourceDeclaration, source_column
from relstate_dagster.jobs.sources.file_records import FileRecords, partition_names
from relstate_dagster.jobs.sources.folder_files import FolderFiles
from relstate_dagster.state_lib.constants import HIDDEN_COLUMNS
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.lake.folders import is_table

#: Columns are inferred from so many files, the oldest ones.
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
    files = FolderFiles(source.name, folder, "")
    paths = files.listing().sort_by([("modified_at", "ascending"), ("path", "ascending")])["path"].to_pylist()
    schema = _struct(source.columns_ddl)
    reader = FileRecords(spark.newSession(), folder, schema, partition_names(paths))
    try:
        if source.columns:
            if paths:
                reader.records(files.full_paths(paths[:1])).isEmpty()
            return source
        if not paths:
            raise DeclarationError(
                f"source {source.name}: no columns are listed, and {folder.location} has no file yet to say which there are; "
                "list them"
            )
        found = reader.inferred(files.full_paths(paths[:_INFERRED_FROM]))
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        raise DeclarationError(f"source {source.name}: Spark cannot read {folder.location} as declared: {reason}") from error
    reserved = sorted(HIDDEN_COLUMNS & {name.lower() for name in found.names})
    if reserved:
        raise DeclarationError(
            f"source {source.name}: files have a column {', '.join(reserved)}, a reserved name; list the columns"
        )
    return replace(source, columns=tuple(source_column(f.name, f.dataType.simpleString()) for f in found.fields))


def _struct(ddl: str) -> T.StructType:
    schema = T.StructType.fromDDL(ddl) if ddl else T.StructType()
    assert isinstance(schema, T.StructType)
    return schema
