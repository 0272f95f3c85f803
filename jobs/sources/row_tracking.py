"""Row tracking: unchanged rows of rewritten files cancel out by their ids.

A row has one id in all versions of its table. Its version is that of the commit that last inserted or updated it. So rows of
two files with the same id and version are one row, unchanged, and no other column is compared. Both are in columns of files
into which a commit copied rows. For other files the log has them: the id of the first row, and one version for all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.sources.file_values import file_metadata, free_name, value_of_file
from relstate_dagster.state_lib.collected import held_rows
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.lake.log import Action, TableFacts
from relstate_dagster.state_lib.row_width import value_bytes
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.tuning import tuning

_ID_COLUMN: Final = "delta.rowTracking.materializedRowIdColumnName"
_VERSION_COLUMN: Final = "delta.rowTracking.materializedRowCommitVersionColumnName"
#: Bytes of a pair in memory.
_PAIR_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class FirstRow:
    """The id of a file's first row, and the version of its rows."""

    row_id: int
    version: int

    @classmethod
    def of(cls, file: Action) -> FirstRow | None:
        """From what adds or removes the file; ``None`` where that does not tell."""
        row_id, version = file.get("baseRowId"), file.get("defaultRowCommitVersion")
        return None if row_id is None or version is None else cls(int(row_id), int(version))


@dataclass(frozen=True, slots=True)
class RowTracking:
    """Ids and versions of the rows in some files.

    Parameters
    ----------
    id_column, version_column : of files with copied rows.
    first_rows : by the paths of files.
    """

    id_column: str
    version_column: str
    first_rows: Mapping[str, FirstRow]

    @classmethod
    def between(
        cls, since: TableFacts, until: TableFacts, first_rows: Mapping[str, Collection[FirstRow]], paths: Collection[str]
    ) -> RowTracking | None:
        """That of the files in which two versions of a table differ.

        ``None`` unless both versions track rows, in the same columns, and the ids of all files are known.

        Parameters
        ----------
        first_rows : of files that commits in between added or removed; more than one of a file if they disagree.
        paths : of the files that are read.
        """
        names = [since.properties.get(key) for key in (_ID_COLUMN, _VERSION_COLUMN)]
        if not (since.tracks_rows and until.tracks_rows) or None in names:
            return None
        if names != [until.properties.get(key) for key in (_ID_COLUMN, _VERSION_COLUMN)]:
            return None
        known = {path: tuple(first_rows.get(path, ())) for path in paths}
        if any(len(of_path) != 1 for of_path in known.values()):
            return None
        return cls(str(names[0]), str(names[1]), {path: first for path, (first,) in known.items()})

    def names(self, columns: Collection[str]) -> tuple[str, str]:
        """Names of ids and versions beside some columns."""
        return free_name("_tracked_id", columns), free_name("_tracked_version", columns)

    @property
    def fields(self) -> tuple[T.StructField, ...]:
        """The columns that files may have."""
        return tuple(T.StructField(name, T.LongType()) for name in (self.id_column, self.version_column))

    def tracked(self, table: str, rows: DataFrame, columns: Sequence[str], paths: Sequence[str]) -> DataFrame:
        """Rows with their ids and versions.

        Parameters
        ----------
        table : where it lies.
        rows : as Spark reads them from some files, with :attr:`fields`.
        columns : that are kept.
        paths : of the files.
        """
        first = [self.first_rows[path] for path in paths]
        of_place = value_of_file(table, rows, paths, [one.row_id for one in first]) + file_metadata(rows, "row_index")
        of_file = value_of_file(table, rows, paths, [one.version for one in first])
        id_name, version_name = self.names(columns)
        return rows.select(
            *map(quoted, columns),
            F.coalesce(F.col(quoted(self.id_column)), of_place).alias(id_name),
            F.coalesce(F.col(quoted(self.version_column)), of_file).alias(version_name),
        )


def saves_comparing(schema: T.StructType, columns: Collection[str] | None) -> bool:
    """Whether rows are so wide that comparing ids is less work.

    Rows are read twice then.

    Parameters
    ----------
    columns : that would be compared; ``None`` for all.
    """
    compared = [field for field in schema.fields if columns is None or field.name in columns]
    return value_bytes(T.StructType(compared)) >= tuning().tracked_row_bytes


def changed_rows(spark: SparkSession, rows: DataFrame, tracked: Sequence[str]) -> DataFrame:
    """Rows of removed and added files without unchanged ones.

    A job reads their ids and versions alone. Where very many have changed, it is all rows.

    Parameters
    ----------
    rows : of :meth:`RowTracking.tracked`, with their weights.
    tracked : names of ids and versions.
    """
    columns, both = [quoted(name) for name in rows.columns if name not in tracked], [quoted(name) for name in tracked]
    ids = rows.groupBy(*both).agg(F.sum(WEIGHT).alias(WEIGHT)).where(f"{WEIGHT} != 0").select(*both)
    changed = held_rows(ids, tuning().marked_rows * _PAIR_BYTES)
    if changed is None:
        return rows.select(*columns)
    return rows.join(changed.frame(spark).hint("broadcast"), list(tracked), "left_semi").select(*columns)
