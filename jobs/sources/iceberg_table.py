"""An Iceberg table, opened by PyIceberg: its snapshots, and the files of each.

A version is the time, in milliseconds, at which a snapshot became the current one: it also grows where a table is rolled
back. Manifests never change, and are read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from relstate_dagster.jobs.declare.iceberg_tables import IN_CATALOG
from relstate_dagster.jobs.sources.deleted_rows import DeletedRows
from relstate_dagster.jobs.sources.file_layout import file_name
from relstate_dagster.jobs.sources.iceberg_columns import bound, check_names, schema_json
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.address import Address, full_path
from relstate_dagster.state_lib.lake.parquet import opened_parquet
from relstate_dagster.state_lib.lake.statistics import DataFile
from relstate_dagster.state_lib.lake.storage import pyiceberg_options

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.manifest import ManifestEntry
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a table, and its columns as JSON of a Spark schema."""

    version: int
    snapshot_id: int | None
    schema_json: str


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """Files of a snapshot by their paths, and the rows in them that are deleted."""

    files: Mapping[str, DataFile]
    deleted: DeletedRows


class IcebergTable:
    """A table by its place.

    Parameters
    ----------
    path : ``iceberg:catalog.database.table``, or a folder with a ``version-hint.text``, as Hadoop's catalogs have it.
    where : names the source in errors.
    """

    def __init__(self, path: str, where: str) -> None:
        self._path = path
        self._where = where
        self._table: Table | None = None
        self._manifests: dict[str, list[ManifestEntry]] = {}
        self._contents: dict[int | None, SnapshotContent] = {}

    def newest(self) -> Snapshot:
        """The current snapshot, looked up in the catalog.

        Raises
        ------
        SourceError : the table cannot be opened, or not be read.
        """
        self._table = self._opened()
        return self._snapshot(*self._log[-1], self._table.schema())

    def at(self, version: int) -> Snapshot:
        """The snapshot that was current at a version.

        Raises
        ------
        SourceError : it has expired, or was never there.
        """
        first = self._metadata.snapshot_by_id(self._log[0][1] or 0)
        # Whoever expires snapshots may say of the one that is left that it has no parent.
        was_empty = [(0, None)] if first is not None and first.sequence_number == 1 else []
        found = [entry for entry in (*was_empty, *self._log) if entry[0] <= version]
        if not found or version < 0:
            raise SourceError(f"{self._where} has no version {version} any more: its snapshots have expired")
        at, snapshot_id = found[-1]
        known = self._metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
        schema = None if known is None or known.schema_id is None else self.table.schemas().get(known.schema_id)
        return self._snapshot(at, snapshot_id, schema or self.table.schema())

    @property
    def table(self) -> Table:
        """The table as it was opened last."""
        if self._table is None:
            self._table = self._opened()
        return self._table

    @property
    def uuid(self) -> str:
        """Names the table, whatever it is called."""
        return str(self._metadata.table_uuid)

    def has(self, snapshot_id: int | None) -> bool:
        """Whether a snapshot has not expired."""
        return snapshot_id is None or self._metadata.snapshot_by_id(snapshot_id) is not None

    def content(self, snapshot_id: int | None) -> SnapshotContent:
        """The files of a snapshot.

        Raises
        ------
        SourceError : they cannot be read as Parquet, or rows are deleted in a way that is not read.
        """
        if snapshot_id not in self._contents:
            try:
                self._contents[snapshot_id] = self._read_content(snapshot_id)
            except (OSError, ValueError) as error:  # as PyIceberg and Arrow raise them
                raise SourceError(
                    f"{self._where}: the files of snapshot {snapshot_id} cannot be listed: {type(error).__name__}: {error}"
                ) from error
        return self._contents[snapshot_id]

    @property
    def _metadata(self) -> TableMetadata:
        return self.table.metadata

    @property
    def _log(self) -> list[tuple[int, int | None]]:
        """Versions with their snapshots, in order."""
        return [(entry.timestamp_ms, entry.snapshot_id) for entry in self._metadata.snapshot_log] or [(0, None)]

    def _snapshot(self, version: int, snapshot_id: int | None, schema: Schema) -> Snapshot:
        check_names({found.schema_id: found for found in self._metadata.schemas}, schema, self._where)
        return Snapshot(version, snapshot_id, schema_json(schema, self._where))

    def _opened(self) -> Table:
        try:
            from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - an optional package
            from pyiceberg.table import StaticTable  # noqa: PLC0415
        except ImportError as error:
            raise SourceError(
                f"{self._where} is an Iceberg table, which PyIceberg opens: install relstate-dagster[iceberg]"
            ) from error
        try:
            if self._path.startswith(IN_CATALOG):
                catalog, _, name = self._path.removeprefix(IN_CATALOG).partition(".")
                return load_catalog(catalog).load_table(name)
            return StaticTable.from_metadata(self._path, pyiceberg_options(self._path.partition("://")[0]))
        # PyIceberg raises errors of its own, of its catalogs and of their clients.
        except Exception as error:
            hint = "catalogs are configured for PyIceberg, in .pyiceberg.yaml or PYICEBERG_CATALOG__…"
            if not self._path.startswith(IN_CATALOG):
                hint = "a folder needs metadata/version-hint.text, as Hadoop's catalogs have it; else name its catalog"
            raise SourceError(f"{self._where} cannot be opened: {type(error).__name__}: {error}; {hint}") from error

    def _read_content(self, snapshot_id: int | None) -> SnapshotContent:
        from pyiceberg.manifest import DataFileContent, FileFormat  # noqa: PLC0415 - an optional package

        files: dict[str, DataFile] = {}
        positions: dict[str, list[pa.Int64Array]] = {}
        for entry in self._entries(snapshot_id):
            file = entry.data_file
            if file.file_format is not FileFormat.PARQUET:
                what = "deletes rows by" if file.content is not DataFileContent.DATA else "has"
                raise SourceError(
                    f"{self._where} {what} files of format {file.file_format.value}; only Parquet is read: rewrite "
                    "them (rewrite_data_files)"
                )
            if file.content is DataFileContent.EQUALITY_DELETES:
                raise SourceError(
                    f"{self._where} deletes rows by values (equality deletes), which are not read. Compact the table "
                    "(rewrite_data_files) after each write, or let it be written by copy-on-write"
                )
            if file.content is DataFileContent.POSITION_DELETES:
                for path, places in self._positions(file.file_path).items():
                    positions.setdefault(path, []).append(places)
            else:
                found = self._data_file(file)
                files[found.path] = found
        # Places are kept by the names of files.
        deleted = {
            file_name(path): pa.chunked_array(places).unique().sort() for path, places in positions.items() if path in files
        }
        if deleted and len(set(map(file_name, files))) < len(files):
            raise SourceError(f"{self._where} has rows deleted in files, and files of one name in several folders: compact it")
        return SnapshotContent(dict(sorted(files.items())), DeletedRows(deleted))

    def _entries(self, snapshot_id: int | None) -> Iterator[ManifestEntry]:
        """Files of a snapshot as its manifests have them."""
        snapshot = None if snapshot_id is None else self._metadata.snapshot_by_id(snapshot_id)
        for manifest in [] if snapshot is None else snapshot.manifests(self.table.io):
            if manifest.manifest_path not in self._manifests:
                self._manifests[manifest.manifest_path] = manifest.fetch_manifest_entry(self.table.io, discard_deleted=True)
            yield from self._manifests[manifest.manifest_path]

    def _positions(self, path: str) -> dict[str, pa.Int64Array]:
        """Places of deleted rows by the file in which they are."""
        with opened_parquet(full_path("", _in_log(path))) as parquet:
            rows = parquet.read(["file_path", "pos"])
        by_file = rows.group_by("file_path").aggregate([("pos", "list")])
        pairs = zip(by_file["file_path"].to_pylist(), by_file["pos_list"], strict=True)
        return {_in_log(name): of_file.values for name, of_file in pairs}

    def _data_file(self, file: IcebergFile) -> DataFile:
        counts = file.value_counts or {}
        missing = [name for field_id, name in self._identity_partitions(file.spec_id) if counts and field_id not in counts]
        if missing:
            raise SourceError(
                f"{self._where}: {file.file_path} has no values of the partition column {missing[0]}, as files that another "
                "table's folders held; rewrite it (rewrite_data_files)"
            )
        lower, upper = (self._bounds(bounds or {}) for bounds in (file.lower_bounds, file.upper_bounds))
        return DataFile(_in_log(file.file_path), file.file_size_in_bytes, file.record_count, {}, lower, upper)

    def _identity_partitions(self, spec_id: int | None) -> list[tuple[int, str]]:
        """Columns by whose values files are partitioned, as ids with names."""
        spec = self._metadata.specs().get(spec_id or 0)
        fields = [] if spec is None else [field for field in spec.fields if str(field.transform) == "identity"]
        return [(field.source_id, field.name) for field in fields]

    def _bounds(self, bounds: Mapping[int, bytes]) -> dict[str, Any]:
        found = {name: bound(self._types[i], bounds[i]) for i, name in self._columns.items() if i in bounds}
        return {name: value for name, value in found.items() if value is not None}

    @cached_property
    def _columns(self) -> dict[int, str]:
        return {field.field_id: field.name for schema in self._metadata.schemas for field in schema.fields}

    @cached_property
    def _types(self) -> dict[int, Any]:
        return {field.field_id: field.field_type for schema in self._metadata.schemas for field in schema.fields}


def _in_log(uri: str) -> str:
    """The address of a file as Delta's log would have it: escaped, with Spark's scheme."""
    if "://" not in uri and not uri.startswith("file:"):
        return f"file://{quote(uri)}"
    if uri.startswith("file:"):
        return f"file:///{quote(uri.removeprefix('file:').lstrip('/'))}"
    scheme, _, rest = uri.partition("://")
    spark, _, _ = Address.parse(f"{scheme}://{rest.partition('/')[0]}/x").spark.partition("://")
    return f"{spark}://{quote(rest)}"
