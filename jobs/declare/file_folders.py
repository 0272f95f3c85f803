"""Declarations of folders of files as sources.

::

    CREATE TABLE events (id BIGINT, at TIMESTAMP, kind STRING) USING csv OPTIONS (header 'true') LOCATION '/data/events'
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from relstate_dagster.jobs.declare.model import FILE_FORMATS, FileFolder, SourceDeclaration, source_column
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.lake.address import Address

#: Options of Spark's readers that say which files are read, or what becomes of malformed records, in lower case.
_REFUSED: Final = {
    "path": "LOCATION names the folder",
    "paths": "LOCATION names the folder",
    "basepath": "it is the folder",
    "recursivefilelookup": "files in folders below are read as well",
    "pathglobfilter": "every file of the folder is read; keep others in another folder",
    "modifiedbefore": "every file is read once, whenever it comes",
    "modifiedafter": "every file is read once, whenever it comes",
    "mode": "malformed records are kept apart, with their file, their place and the reason",
    "columnnameofcorruptrecord": "malformed records are kept apart, with their file, their place and the reason",
    "ignorecorruptfiles": "a file that cannot be read is an error",
    "ignoremissingfiles": "a file that cannot be read is an error",
    "mergeschema": "list the columns",
    "__globpaths__": "LOCATION names the folder",
}


def check_file_folder(source: SourceDeclaration, where: str) -> None:
    """Check what a declaration says of files.

    Raises
    ------
    DeclarationError
        There are options without files, files without a folder, or something that has no meaning for them.
    """
    if source.file_format is None:
        if source.options:
            raise DeclarationError(
                f"{where}: OPTIONS say how files are read: write USING with one of {', '.join(FILE_FORMATS)} as well; "
                "properties of a Delta table go in TBLPROPERTIES."
            )
        return
    if source.location is None:
        raise DeclarationError(f"{where}: USING {source.file_format} needs a LOCATION, the folder of the files.")
    for key in source.options:
        if key.lower() in _REFUSED:
            raise DeclarationError(f"{where}: the option {key!r} is not taken: {_REFUSED[key.lower()]}.")
    if source.properties.get("source.kind") in ("upsert", "debezium") and "source.order" not in source.properties:
        raise DeclarationError(
            f"{where}: files have no order, so the newer of two rows of a key is not known. Name a column that orders them in "
            "'source.order': for example a time, or the log's position in Debezium's event.source."
        )


def with_required_key(source: SourceDeclaration) -> SourceDeclaration:
    """A declaration that takes records without a key value as malformed."""
    if source.file_format is None or source.properties.get("source.kind") == "debezium":
        return source
    key = {name.lower() for name in source.primary_key}
    columns = [
        source_column(c.name, c.type_text, not_null=c.not_null or c.name.lower() in key, comment=c.comment)
        for c in source.columns
    ]
    return replace(source, columns=tuple(columns))


def file_folder(source: SourceDeclaration) -> FileFolder | None:
    """The folder of a declared source; None for a Delta table."""
    if source.file_format is None:
        return None
    assert source.location is not None
    # Without comments, which say nothing of rows.
    columns = ", ".join(source_column(c.name, c.type_text, not_null=c.not_null).ddl for c in source.columns)
    if source.partitioned_by:
        columns += f"; {', '.join(source.partitioned_by)}"
    return FileFolder(Address.parse(source.location).spark, source.file_format, tuple(sorted(source.options.items())), columns)
