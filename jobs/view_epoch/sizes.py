"""The sizes that a view's epoch is planned by: from logs alone, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from relstate_dagster.jobs.catalog.entries import ViewEntry, ViewVersions
from relstate_dagster.jobs.sources.file_layout import struct_of
from relstate_dagster.jobs.sources.pins import ChangeRange
from relstate_dagster.jobs.view_epoch.findings import StateFound
from relstate_dagster.jobs.view_epoch.pinned_sources import PinnedSources
from relstate_dagster.jobs.view_epoch.plan import ViewSizes
from relstate_dagster.jobs.view_epoch.source_lookups import SourceLookups
from relstate_dagster.jobs.view_epoch.steps import Read
from relstate_dagster.state_lib.constants import EPOCH_COLUMN, TABLE_ID
from relstate_dagster.state_lib.delta_layout import is_plain_layout
from relstate_dagster.state_lib.lake.statistics import DataFile, byte_count, row_count
from relstate_dagster.state_lib.row_encoding.ddl import parse_type
from relstate_dagster.state_lib.row_width import RowWidth
from relstate_dagster.state_lib.slots import assign_slots
from relstate_dagster.state_lib.state_files import StateFiles

_NOTHING: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({})


@dataclass(slots=True)
class InputSizes:
    """Sizes of a view's inputs in an epoch.

    Parameters
    ----------
    versions : what the upstream views have come to in this epoch, and in the epochs before.
    """

    sources: PinnedSources
    lookups: SourceLookups
    versions: Mapping[str, ViewVersions]
    _states: dict[str, StateFiles] = field(default_factory=dict)

    @property
    def is_backfill(self) -> bool:
        """Whether nothing of the view has been computed yet."""
        return self.sources.since is None

    def total_bytes(self) -> int:
        """Bytes of all that the view reads as of this epoch, as files."""
        return sum(read.bytes for read in self._all_rows())

    def total_values(self) -> int:
        """Values of all that the view reads as of this epoch: rows times columns."""
        return sum(read.row_count * read.width.columns for read in self._all_rows())

    def check(self) -> dict[str, ChangeRange]:
        """Changes of sources; raises before anything is written if one is unreadable."""
        since = self.sources.since
        if since is None:
            self._all_rows()
            return {}
        names = [name for name in self.sources.view.reads if name not in self.sources.catalog.views]
        return {name: self.sources.range(name, self.sources.pin_of(since, name)) for name in names}

    def planned_reads(self, moved: Mapping[str, tuple[int, int]] = _NOTHING) -> tuple[Read, ...]:
        """Read steps of this epoch.

        Raises as :meth:`check` does.

        Parameters
        ----------
        moved : rows that upstream views have inserted and deleted since the view's last epoch, where a run knows it.
        """
        if self.is_backfill:
            return self._all_rows()
        found, view = self.check(), self.sources.view
        reads = []
        for name in self.sources.view.reads:
            if name in self.sources.catalog.views:
                reads.append(self._view_read(name, moved.get(name)))
                continue
            changed = found[name]
            rows = (changed.rows_inserted, changed.rows_deleted)
            way = self.sources.source(name).read_strategy(changed, self.sources.pin(name), self.sources.generated_columns(name))
            if view.strategy == "full":
                way = f"{way}; the query reads all rows"
            reads.append(Read(name, way, changed.changed_bytes, rows, sum(rows), self._width(name)))
        return tuple(reads)

    def _all_rows(self) -> tuple[Read, ...]:
        reads = []
        for name in self.sources.view.reads:
            if name in self.sources.catalog.views:
                reads.append(self._read_of(name, "all rows of the view", *_totals(self._view_files(name))))
            else:
                pin = self.sources.pin(name)
                which = "all rows" if pin.first_files is None else f"the first {pin.first_files} file(s)"
                reads.append(self._read_of(name, which, *self.sources.source(name).totals(pin)))
        return tuple(reads)

    def _view_read(self, name: str, moved: tuple[int, int] | None) -> Read:
        """The change log of an upstream view since this view's last epoch."""
        since, versions = self.sources.view.last_epoch, self.versions.get(name)
        assert since is not None
        if versions is None or self.is_unchanged(name, versions):
            return Read(name, "nothing changed", 0, (0, 0))
        files, way = self._view_files(name), "its change log"
        if moved is not None:
            # Compaction puts old rows and new ones into one file: of its bytes the new rows have their share.
            share = sum(moved) / max(1, sum(f.rows for f in files))
            read_bytes = round(min(1.0, share) * byte_count(files))
            return Read(name, way, read_bytes, moved, sum(moved), self._width(name))
        new = [f for f in files if f.upper.get(EPOCH_COLUMN) is None or f.upper[EPOCH_COLUMN] > since]
        return self._read_of(name, way, *_totals(new))

    def _read_of(self, name: str, way: str, read_bytes: int, rows: int | None) -> Read:
        """All rows of some files of a relation; ``rows`` if the log has them."""
        width = self._width(name)
        return Read(name, way, read_bytes, None, width.rows_in(read_bytes) if rows is None else rows, width)

    def _width(self, name: str) -> RowWidth:
        """Width of the columns that the view reads of a relation."""
        read = self.lookups.used_columns.get(name)
        if name in self.sources.catalog.views:
            upstream = self.sources.catalog.views[name].plan
            types = {o.name: parse_type(upstream.field_named(o.column).data_type) for o in upstream.output}
        else:
            types = {f.name: f.dataType for f in struct_of(self.sources.pin(name).schema_json).fields}
        return RowWidth.of(data_type for column, data_type in types.items() if read is None or column in read)

    def _view_files(self, name: str) -> tuple[DataFile, ...]:
        """The files that hold the rows of an upstream view."""
        upstream, versions = self.sources.catalog.views[name], self.versions.get(name)
        if versions is None or versions.state_version is None:
            return ()
        return self.state_of(upstream).of(versions.state_version, frozenset((upstream.tables[-1].table_id,)))

    def state_of(self, upstream: ViewEntry) -> StateFiles:
        """The files of an upstream view's state, opened once."""
        return self._states.setdefault(upstream.name, StateFiles(self.sources.warehouse.state_path(upstream)))

    def is_unchanged(self, name: str, versions: ViewVersions) -> bool:
        """Whether an upstream view's state is unchanged since this view's last epoch."""
        since = self.sources.view.last_epoch
        before = None if since is None else self.sources.catalog.epochs[since].versions.get(name)
        return before is not None and before.state_version == versions.state_version

    def of_view(
        self,
        files: StateFiles,
        state_version: int | None,
        seen: ViewVersions | None,
        moved: Mapping[str, tuple[int, int]] = _NOTHING,
        *,
        is_committed: bool = False,
    ) -> ViewSizes:
        """Sizes of the view's epoch before it is computed.

        Parameters
        ----------
        files, state_version : of the view's state, up to which version; ``None``: there is none yet.
        seen : what readers see of the view.
        moved : as of :meth:`planned_reads`.
        is_committed : an earlier try has committed the change set: nothing is read of what the view reads.

        Raises
        ------
        SourceError : a source's changes cannot be read.
        """
        view, shown = self.sources.view, (seen or ViewVersions()).view_version
        is_first = view.last_epoch is None
        replaces = is_first and shown is not None
        only_inserts = view.plan.append_only or (is_first and not replaces)
        known = ViewSizes(
            self.is_backfill,
            () if is_committed else self.planned_reads(moved),
            only_inserts=only_inserts,
            replaces=replaces,
            is_committed=is_committed,
            is_slice=is_first and not self.is_backfill and not is_committed,
            driver_writes_state=is_plain_layout(assign_slots([desc.schema for desc in view.tables])),
            driver_writes_view=self.sources.warehouse.target(view.name).driver_can_write(view.declared_table),
        )
        if is_committed:
            return replace(known, looked_up_rows=_rows_of(files.at(state_version)))
        if self.is_backfill:
            return known
        state, in_place = files.at(state_version), self.lookups.in_place_files()
        return replace(
            known,
            state_bytes=byte_count(state),
            in_place_bytes=byte_count(in_place),
            looked_up_rows=_rows_of(state) + _rows_of(in_place),
            state=state_found(view, state),
        )


def state_found(view: ViewEntry, files: Sequence[DataFile]) -> StateFound:
    """Bytes and rows of a view's state tables, out of the files of its state."""
    # In one pass: a large state has many thousand files.
    size, rows = ({table.table_id: 0 for table in view.tables} for _ in range(2))
    for file in files:
        table_id = file.partition[TABLE_ID]
        size[table_id] += file.bytes
        rows[table_id] += file.rows
    return StateFound(
        bytes=size,
        rows=rows,
        merged_rows={int(table_id): rows for table_id, rows in view.merged_rows.items()},
    )


def _totals(files: Sequence[DataFile]) -> tuple[int, int | None]:
    return byte_count(files), row_count(files)


def _rows_of(files: Sequence[DataFile]) -> int:
    """Row count of files; estimated as one a byte if the log has none."""
    read_bytes, rows = _totals(files)
    return read_bytes if rows is None else rows
