"""Records of files read by Spark: rows, and malformed ones with place and reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.declare.model import FileFolder
from relstate_dagster.jobs.sources.file_values import file_metadata
from relstate_dagster.state_lib.lake.address import no_pattern
from relstate_dagster.state_lib.sql_text import quoted

#: What a record is that is no row.
MALFORMED_COLUMNS: Final = T.StructType(
    [
        T.StructField("file", T.StringType()),
        T.StructField("record", T.LongType()),
        T.StructField("text", T.StringType()),
        T.StructField("reason", T.StringType()),
        T.StructField("batch", T.LongType()),
    ]
)
#: The text of a record that Spark could not read; NULL for others.
_TEXT: Final = "_relstate_text"
_FILE: Final = "_relstate_file"
_NUMBER: Final = "_relstate_number"
#: Formats of lines of text, which can be no row.
_OF_TEXT: Final = frozenset({"csv", "json"})
#: Options of files, which the parser of a single record does not take.
_OF_FILES: Final = frozenset({"header", "inferschema", "enforceschema", "linesep", "multiline", "encoding", "charset"})


@dataclass(frozen=True, slots=True)
class FileRecords:
    """Reader of a folder's files.

    Parameters
    ----------
    spark : a session of its own, since its settings are changed.
    schema : the columns of the table that the rows are for. In those that are not nullable a record needs a value.
    partitions : the columns whose values are in the names of folders, as in ``day=2024-01-01``, whether declared or not.
    """

    spark: SparkSession
    folder: FileFolder
    schema: T.StructType
    partitions: frozenset[str] = frozenset()

    def records(self, files: Sequence[str]) -> DataFrame:
        """Records of files: the table's columns, the file, and the text of malformed ones."""
        rows = self._read(files, _TEXT)
        return rows.select(*self._columns, self._text.alias(_TEXT), file_metadata(rows, "file_path").alias(_FILE))

    def rows(self, records: DataFrame) -> DataFrame:
        """Those of :meth:`records` that are rows, with the table's columns."""
        return records.filter(F.col(_TEXT).isNull()).select(*self._columns)

    def malformed_files(self, records: DataFrame) -> list[str]:
        """Files with malformed records among :meth:`records`, by their paths in the folder."""
        # A record is no row for one of its columns, so all of them have to be read.
        of_all = F.max(F.length(F.to_json(F.struct(*self._columns))))
        found = records.filter(F.col(_TEXT).isNotNull()).groupBy(self._inside(F.col(_FILE)).alias(_FILE)).agg(of_all)
        return [row[0] for row in found.collect()]

    def malformed(self, files: Sequence[str], batch: int) -> DataFrame:
        """The records of some files that are no rows, with the columns ``MALFORMED_COLUMNS``.

        A record's number counts from 1 in its file, empty lines and the header left out. Each file is read as a whole by one
        task, which alone can count.
        """
        rows = self._read(files, _TEXT)
        path, number = file_metadata(rows, "file_path").alias(_FILE), F.monotonically_increasing_id().alias(_NUMBER)
        numbered = rows.select(*self._columns, self._text.alias(_TEXT), path, number)
        first = numbered.groupBy(_FILE).agg(F.min(_NUMBER).alias("_relstate_first"))
        found = numbered.filter(F.col(_TEXT).isNotNull()).join(first, _FILE)
        return found.select(
            self._inside(F.col(_FILE)).alias("file"),
            (F.col(_NUMBER) - F.col("_relstate_first") + 1).alias("record"),
            F.col(_TEXT).alias("text"),
            self._reason.alias("reason"),
            F.lit(batch).cast("bigint").alias("batch"),
        )

    def inferred(self, files: Sequence[str]) -> T.StructType:
        """The columns that Spark finds in files."""
        reader = self.spark.read.format(self.folder.format).options(**{"inferSchema": "true", **dict(self.folder.options)})
        found = self._loaded(reader, files).schema
        return T.StructType([_usable(field) for field in found.fields if field.name != "_corrupt_record"])

    # -- what Spark is asked ------------------------------------------------------------------------------------------

    @property
    def _columns(self) -> list[Column]:
        return [F.col(quoted(name)) for name in self.schema.names]

    def _read(self, files: Sequence[str], text: str) -> DataFrame:
        options = dict(self.folder.options)
        fields = [T.StructField(field.name, field.dataType) for field in self.schema.fields]
        if self.folder.format in _OF_TEXT:
            options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": text}
            fields.append(T.StructField(text, T.StringType()))
        if self.folder.format == "csv":
            # By default Spark takes columns by their places, whatever the header says.
            options = {"enforceSchema": "false", **options}
        reader = self.spark.read.format(self.folder.format).options(**options).schema(T.StructType(fields))
        rows = self._loaded(reader, files)
        return rows if self.folder.format in _OF_TEXT else rows.withColumn(text, F.lit(None).cast("string"))

    def _loaded(self, reader: DataFrameReader, files: Sequence[str]) -> DataFrame:
        if self.partitions & set(self.schema.names) or not self.schema.names:
            reader = reader.option("basePath", self.folder.location)
        return reader.load([no_pattern(file) for file in files])

    @property
    def _text(self) -> Column:
        """Text of a malformed record: as read, or as JSON if a value is missing."""
        missing = [F.col(quoted(f.name)).isNull() for f in self.schema.fields if not f.nullable]
        if not missing:
            return F.col(_TEXT)
        is_missing = missing[0]
        for other in missing[1:]:
            is_missing = is_missing | other
        return F.coalesce(F.col(_TEXT), F.when(is_missing, F.to_json(F.struct(*self._columns))))

    @property
    def _reason(self) -> Column:
        """Why a record is no row."""
        what = {"csv": self._of_csv, "json": self._of_json}.get(self.folder.format)
        missing = [
            F.when(F.col(quoted(f.name)).isNull(), F.lit(f"{f.name} is NULL")) for f in self.schema.fields if not f.nullable
        ]
        unlike = F.lit(f"it is no record of {len(self._in_files)} columns")
        messages = [
            F.nullif(F.concat_ws("; ", *reasons), F.lit("")) for reasons in ((what() if what else []), missing) if reasons
        ]
        return F.coalesce(*messages, unlike)

    @property
    def _in_files(self) -> list[T.StructField]:
        return [field for field in self.schema.fields if field.name not in self.partitions]

    def _of_csv(self) -> list[Column]:
        texts = ", ".join(f"{quoted(field.name)} STRING" for field in self._in_files)
        options = {key: value for key, value in self.folder.options if key.lower() not in _OF_FILES}
        parsed = F.from_csv(F.col(_TEXT), texts, {**options, "mode": "PERMISSIVE"})
        return [_unlike(field, parsed.getField(field.name)) for field in self._in_files]

    def _of_json(self) -> list[Column]:
        options = {key: value for key, value in self.folder.options if key.lower() not in _OF_FILES}
        parsed = F.from_json(F.col(_TEXT), "MAP<STRING, STRING>", {**options, "mode": "PERMISSIVE"})
        values = [_unlike(field, F.element_at(parsed, field.name)) for field in self._in_files]
        return [F.when(parsed.isNull(), F.lit("it is no JSON object")), *values]

    def _inside(self, file: Column) -> Column:
        """Path of a file in its folder.

        Spark has it as an address, escaped but for plus signs.
        """
        plain = F.regexp_replace(F.url_decode(F.replace(file, F.lit("+"), F.lit("%2B"))), "^file:/+", "/")
        return F.regexp_replace(F.replace(plain, F.lit(self.folder.location), F.lit("")), "^/", "")


def partition_names(paths: Sequence[str]) -> frozenset[str]:
    """The names that folders of files have a value of, as in ``day=2024-01-01``."""
    return frozenset(part.split("=")[0] for path in paths for part in path.split("/")[:-1] if "=" in part)


def _unlike(field: T.StructField, text: Column) -> Column:
    """That a text is no value of a column's type; NULL where it is one."""
    wrong = text.isNotNull() & (text != "") & F.col(quoted(field.name)).isNull()
    of_type = F.lit(f"' is no {field.dataType.simpleString().upper()}")
    shown = F.concat(F.lit(f"{field.name}: '"), F.substring(text, 1, 100), of_type)
    return F.when(wrong, shown)


def _usable(field: T.StructField) -> T.StructField:
    """A column as inferred.

    One without a value has no known type, and becomes a text.
    """
    return T.StructField(field.name, T.StringType() if isinstance(field.dataType, T.NullType) else field.dataType)
