"""Values that belong to files, as columns of their rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.sources.file_layout import file_name
from relstate_dagster.state_lib.lake.address import full_path

_METADATA: Final = "_metadata"


def file_metadata(rows: DataFrame, field: str) -> Column:
    """A field of Spark's ``_metadata`` of rows that it reads from files.

    A table may have a column of that name: those that loads keep, to say where rows came from, often do.
    """
    if any(name.lower() == _METADATA for name in rows.columns):
        return rows.metadataColumn(_METADATA).getField(field)
    return F.col(f"{_METADATA}.{field}")


def free_name(name: str, names: Collection[str]) -> str:
    """A column name beside others: the one given, if it is free."""
    lowered = {one.lower() for one in names}
    while name.lower() in lowered:
        name += "_"
    return name


def value_of_file(
    table: str, rows: DataFrame, paths: Sequence[str], values: Sequence[int | str | None], data_type: str = "bigint"
) -> Column:
    """The value that belongs to the file of a row.

    Parameters
    ----------
    rows : as Spark reads them from the files.
    paths : of the files, as the log has them.
    values : one for each.
    """
    if not paths:
        return F.lit(None).cast(data_type)
    names = [file_name(path) for path in paths]
    where = file_metadata(rows, "file_name")
    if len(set(names)) < len(names):  # a converted table may have a file of the same name in each folder
        names, where = [full_path(table, path) for path in paths], _path_of_file(rows)
    pairs = [F.lit(part) for name, value in zip(names, values, strict=True) for part in (name, value)]
    of_file = F.create_map(*(part.cast(data_type) if n % 2 else part for n, part in enumerate(pairs)))
    return F.element_at(of_file, where)


def _path_of_file(rows: DataFrame) -> Column:
    """Path of a row's file.

    Spark has it as an address, escaped but for plus signs.
    """
    plain = F.url_decode(F.replace(file_metadata(rows, "file_path"), F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(plain, "^file:/+", "/")
