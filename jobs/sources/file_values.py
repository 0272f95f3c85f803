"""Values that belong to files, as columns of their rows."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from relstate_dagster.jobs.sources.file_layout import file_name
from relstate_dagster.state_lib.lake.address import full_path


def value_of_file(table: str, paths: Sequence[str], values: Sequence[int | str | None], data_type: str = "bigint") -> Column:
    """The value that belongs to the file of a row.

    Parameters
    ----------
    paths : of the files, as the log has them.
    values : one for each.
    """
    if not paths:
        return F.lit(None).cast(data_type)
    names = [file_name(path) for path in paths]
    where = F.col("_metadata.file_name")
    if len(set(names)) < len(names):  # a converted table may have a file of the same name in each folder
        names, where = [full_path(table, path) for path in paths], _path_of_file()
    pairs = [F.lit(part) for name, value in zip(names, values, strict=True) for part in (name, value)]
    of_file = F.create_map(*(part.cast(data_type) if n % 2 else part for n, part in enumerate(pairs)))
    return F.element_at(of_file, where)


def _path_of_file() -> Column:
    """Path of a row's file.

    Spark has it as an address, escaped but for plus signs.
    """
    plain = F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(plain, "^file:/+", "/")
