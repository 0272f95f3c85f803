"""One relation that a view reads in an epoch; upstream views."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.catalog.entries import ViewEntry, ViewVersions
from relstate_dagster.jobs.catalog.relations import state_column, view_columns, view_relation
from relstate_dagster.jobs.view_epoch.steps import Read
from relstate_dagster.state_lib.constants import EPOCH, EPOCH_COLUMN, STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.errors import EpochError
from relstate_dagster.state_lib.lake.statistics import DataFile, byte_count, row_count
from relstate_dagster.state_lib.lazy_frame import select
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.row_encoding.ddl import parse_type
from relstate_dagster.state_lib.row_sums import consolidate
from relstate_dagster.state_lib.row_width import RowWidth
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_store import StateStore

if TYPE_CHECKING:
    from relstate_dagster.jobs.view_epoch.inputs import EpochInputs

_COPY: Final = "_copy"


@dataclass(frozen=True, eq=False)
class Input(ABC):
    """A relation as of an epoch, and its change since the view's last one.

    What the log does not tell is unknown, and never read to find out.

    Parameters
    ----------
    inputs : all that the view reads in the epoch.
    """

    inputs: EpochInputs
    name: str

    @abstractmethod
    def has_moved(self) -> bool:
        """Whether it may have other rows than at the view's last epoch."""

    @abstractmethod
    def changes(self, spark: SparkSession) -> DataFrame | None:
        """The change set since the view's last epoch; all rows without one."""

    @abstractmethod
    def rows(self, spark: SparkSession, lookup_keys: LookupKeys | None) -> DataFrame:
        """Rows and ``_weight``.

        With keys, those within their values at least.
        """

    def bag(self, session: SparkSession, _columns: Collection[str]) -> DataFrame:
        """All rows with some columns at least, without weights."""
        return self.snapshot(session)

    @abstractmethod
    def snapshot(self, session: SparkSession) -> DataFrame:
        """Rows with the columns that a query sees."""

    @abstractmethod
    def read_of_all(self) -> Read:
        """The step that reads all rows."""

    def read_of_bag(self) -> Read:
        """The step that reads all rows without weights."""
        return self.read_of_all()

    @abstractmethod
    def read_of_change(self, moved: tuple[int, int] | None) -> Read:
        """The step that reads the change.

        Parameters
        ----------
        moved : rows inserted and deleted in an upstream view, where a run knows it.
        """

    def comes_once(self) -> bool:
        """Whether no two of all rows cancel, or have the same key."""
        return True

    @abstractmethod
    def types(self) -> Mapping[str, T.DataType]:
        """Types of all columns."""

    def provably_absent_before(self, _lookup_keys: LookupKeys) -> bool:
        """Whether no row of the view's last epoch is within some values, if known."""
        return False

    def row_count(self) -> int | None:
        """Rows, also those only marked as deleted; ``None`` if unknown."""
        return None

    def rows_read(self, _lookup_keys: LookupKeys | None) -> float | None:
        """About how many rows a lookup of some values reads; ``None`` if unknown."""
        return None

    def sample(self, _spark: SparkSession) -> tuple[DataFrame, int] | None:
        """Some rows with ``_weight``, and their number; ``None`` if unknown."""
        return None

    def width(self) -> RowWidth:
        """Width of the columns that the view reads."""
        read = self.inputs.used_columns.get(self.name)
        return RowWidth.of(data_type for column, data_type in self.types().items() if read is None or column in read)

    def _read(self, way: str, read_bytes: int, rows: int | None) -> Read:
        """The step that reads all rows of some files; ``rows`` if the log has them."""
        width = self.width()
        return Read(self.name, way, read_bytes, None, width.rows_in(read_bytes) if rows is None else rows, width)


class ViewInput(Input):
    """An upstream view; its state may have a row more than once."""

    @property
    def _entry(self) -> ViewEntry:
        return self.inputs.catalog.views[self.name]

    @property
    def _versions(self) -> ViewVersions:
        return self.inputs.versions.get(self.name) or ViewVersions()

    @cached_property
    def _state(self) -> StateFiles:
        return StateFiles(self.inputs.warehouse.state_path(self._entry))

    def has_moved(self) -> bool:
        """As of :class:`Input`, by the versions of its state."""
        since = self.inputs.view.last_epoch
        before = None if since is None else self.inputs.catalog.epochs[since].versions.get(self.name)
        return self.name not in self.inputs.versions or before is None or before.state_version != self._versions.state_version

    def changes(self, spark: SparkSession) -> DataFrame | None:
        """As of :class:`Input`, out of its change log."""
        since = self.inputs.view.last_epoch
        if self._versions.state_version is None or not self.has_moved():
            return None
        return self._runs(spark, None, since)

    def rows(self, spark: SparkSession, lookup_keys: LookupKeys | None) -> DataFrame:
        """As of :class:`Input`."""
        renamed = None if lookup_keys is None else lookup_keys.renamed(partial(state_column, self._entry))
        return self._runs(spark, renamed)

    def bag(self, session: SparkSession, columns: Collection[str]) -> DataFrame:
        """As of :class:`Input`, from its published table; hidden columns are in its state alone."""
        if set(columns) <= {o.name for o in self._entry.plan.output}:
            return self.snapshot(session)
        relation = view_relation(self._entry)
        read = {*columns, *(relation.key or ())}
        fields = [f for f in (*relation.columns, *relation.hidden_columns) if f.name in read]
        summed = consolidate(self._runs(session, None), fields)
        if relation.key is not None:
            return summed
        return summed.select("*", F.explode(F.sequence(F.lit(1).cast("bigint"), WEIGHT)).alias(_COPY))

    def snapshot(self, session: SparkSession) -> DataFrame:
        """As of :class:`Input`, from its published table."""
        if self._versions.view_version is None:
            raise EpochError(f"view {self.name} has no rows published at epoch {self.inputs.epoch.epoch}")
        rows = self.inputs.warehouse.target(self.name).rows(session, self._versions.view_version)
        return select(rows, [quoted(o.name) for o in self._entry.plan.output])

    def read_of_all(self) -> Read:
        """As of :class:`Input`."""
        return self._read("all rows of the view", *_totals(self._files()))

    def read_of_bag(self) -> Read:
        """As of :class:`Input`, by its published table: the log has rows more than once."""
        version = self._versions.view_version
        found = None if version is None else self.inputs.warehouse.target(self.name).totals(version)
        return self.read_of_all() if found is None else self._read("all rows of the view", *found)

    def read_of_change(self, moved: tuple[int, int] | None) -> Read:
        """As of :class:`Input`: the change log since the view's last epoch."""
        since = self.inputs.view.last_epoch
        assert since is not None
        if self.name not in self.inputs.versions or not self.has_moved():
            return Read(self.name, "nothing changed", 0, (0, 0))
        files, way = self._files(), "its change log"
        if moved is not None:
            # Compaction puts old rows and new ones into one file: of its bytes the new rows have their share.
            share = sum(moved) / max(1, sum(f.rows for f in files))
            return Read(self.name, way, round(min(1.0, share) * byte_count(files)), moved, sum(moved), self.width())
        new = [f for f in files if f.upper.get(EPOCH_COLUMN) is None or f.upper[EPOCH_COLUMN] > since]
        return self._read(way, *_totals(new))

    def comes_once(self) -> bool:
        """As of :class:`Input`: all of its rows are of one epoch."""
        epochs = {epoch for file in self._files() for epoch in (file.lower.get(EPOCH_COLUMN), file.upper.get(EPOCH_COLUMN))}
        return None not in epochs and len(epochs) <= 1

    def types(self) -> Mapping[str, T.DataType]:
        """As of :class:`Input`."""
        plan = self._entry.plan
        return {o.name: parse_type(plan.field_named(o.column).data_type) for o in plan.output}

    def _files(self) -> tuple[DataFile, ...]:
        """The files that hold its rows."""
        version = self._versions.state_version
        return () if version is None else self._state.of(version, frozenset((self._entry.tables[-1].table_id,)))

    def _runs(self, spark: SparkSession, lookup_keys: LookupKeys | None, since: int | None = None) -> DataFrame:
        """Its unmerged rows up to this epoch, after some epoch, with weights."""
        if self._versions.state_version is None:
            raise EpochError(f"view {self.name} has no rows at epoch {self.inputs.epoch.epoch}")
        own = self._entry.tables[-1]
        store = StateStore(spark, self._state, self._entry.tables)
        table = store.storage_table(own.table_id, version=self._versions.state_version, epoch=self.inputs.epoch.epoch)
        runs = table.runs([c.name for c in own.schema.columns], lookup_keys)
        if since is not None:
            runs = runs.where(f"{EPOCH} > {since}L")
        return select(runs, [*view_columns(self._entry), f"{STATE_WEIGHT} AS {WEIGHT}"])


def _totals(files: Sequence[DataFile]) -> tuple[int, int | None]:
    return byte_count(files), row_count(files)
