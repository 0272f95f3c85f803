"""All state tables of one view: one Delta table, written by one append an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, reduce
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.state_lib.collected import collected, rows_within
from relstate_dagster.state_lib.columns import Columns, jvm_of_columns
from relstate_dagster.state_lib.constants import EPOCH_COLUMN, KEY, TABLE_ID, VNODE, WEIGHT, WEIGHT_COLUMN
from relstate_dagster.state_lib.delta_layout import create_state_table, is_plain_layout
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.key_rows import KeyRow, files_with_rows
from relstate_dagster.state_lib.lake.commit import Check, append_rows
from relstate_dagster.state_lib.lake.log import latest_commits
from relstate_dagster.state_lib.lake.statistics import DataFile, row_count
from relstate_dagster.state_lib.lake.table import DeltaTable
from relstate_dagster.state_lib.lazy_frame import lazy, select, where
from relstate_dagster.state_lib.local_checkpoint import local_checkpoint
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.mem_table import MemTable
from relstate_dagster.state_lib.row_encoding import encode_storage_key, storage_key_sql
from relstate_dagster.state_lib.slots import Slot, TableSlots, assign_slots
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_table import StateTable
from relstate_dagster.state_lib.storage_table import StorageTable
from relstate_dagster.state_lib.table_schema import StateTableDesc
from relstate_dagster.state_lib.vnode import check_vnode_count, table_vnode, table_vnode_sql

#: An append finds its own commit among this many, unless others commit very fast; then it reads the whole history.
_RECENT_COMMITS: Final = 10


class StateStore:
    """The Delta state table of a view.

    Parameters
    ----------
    spark : the session.
    files : the Delta table and its files.
    descs : the view's state tables, in the order in which the table catalog numbered them. Their slots follow from it.
    """

    def __init__(self, spark: SparkSession, files: StateFiles, descs: Sequence[StateTableDesc]) -> None:
        for desc in descs:
            check_vnode_count(desc.vnode_count)
        self.path = files.path
        self.descs = tuple(descs)
        self.layout = assign_slots([desc.schema for desc in descs])
        self._spark = spark
        self._by_id = {d.table_id: (d, slots) for d, slots in zip(self.descs, self.layout.tables, strict=True)}
        self.files = files
        fields = [f"{KEY} BINARY", f"{EPOCH_COLUMN} BIGINT", f"{WEIGHT_COLUMN} BIGINT"]
        fields += [f"{slot.name} {slot.data_type}" for slot in self.layout.slots]
        self._stored_schema = ", ".join([*fields, f"{TABLE_ID} INT", f"{VNODE} INT"])

    def create(self) -> None:
        """Create the Delta table, empty (version 0)."""
        create_state_table(self._spark, self.path, self.layout, self.descs)

    def exists(self) -> bool:
        """Whether the Delta table is there; a damaged one is."""
        return DeltaTable.is_deltatable(self.path)

    def stored(
        self,
        table_ids: Sequence[int],
        version: int | None = None,
        lookup_keys: LookupKeys | None = None,
        slot: Slot | None = None,
        key_row: KeyRow | None = None,
    ) -> DataFrame:
        """Stored rows of tables at a version (by default the newest).

        No Spark job.

        Parameters
        ----------
        lookup_keys : the keys of the rows that matter; files without any of them are not read, by their vnode and by the
            ranges in the log. Rows with other keys may come along.
        slot : the slot of the column of ``lookup_keys``: in large files, pages without any of its values are skipped, too.
        key_row : values that columns have in all of the rows that matter; files are not read as above.

        Returns
        -------
        DataFrame
            ``key``, ``epoch``, ``weight``, the slots, ``table_id`` and ``vnode``.
        """
        files = self.files_with(table_ids, version, lookup_keys, slot, key_row)
        if not files:
            return self._no_rows()
        paths = [f"{self.path}/{file.path}" for file in files]
        # One path is one call into the JVM, a list of them is one for each and some more.
        reader = self._spark.read.schema(self._stored_schema).option("basePath", self.path)
        rows = lazy(reader.parquet(*paths))
        if lookup_keys is None or slot is None:
            return rows
        return lookup_keys.restrict(rows, slot.name, slot.data_type, files)

    def files_with(
        self,
        table_ids: Sequence[int],
        version: int | None = None,
        lookup_keys: LookupKeys | None = None,
        slot: Slot | None = None,
        key_row: KeyRow | None = None,
    ) -> tuple[DataFile, ...]:
        """The files that :meth:`stored` reads."""
        found = self.files.of(version, frozenset(table_ids), lookup_keys, None if slot is None else slot.name)
        key_rows = None if lookup_keys is None else lookup_keys.key_rows
        if key_rows is None and key_row is None:
            return found
        kept: list[DataFile] = []
        for table_id in sorted(set(table_ids)):
            own: Sequence[DataFile] = [file for file in found if file.partition[TABLE_ID] == table_id]
            if key_rows is not None:
                own = key_rows.files(*self._table(table_id), own)
            if key_row is not None:
                own = files_with_rows([key_row], *self._table(table_id), own)
            kept += own
        return tuple(kept)

    def row_count(self, table_ids: Sequence[int], version: int | None = None) -> int | None:
        """Stored, unmerged rows of tables at a version; ``None`` if not logged."""
        return row_count(self.files.of(version, frozenset(table_ids)))

    def storage_table(self, table_id: int, *, version: int | None = None, epoch: int | None = None) -> StorageTable:
        """Committed rows of a table, as of a version, an epoch, or both.

        Raises
        ------
        StateError
            The store has no such table.
        """
        desc, slots = self._table(table_id)
        return StorageTable(desc, slots, self.stored, self.row_count, version=version, epoch=epoch)

    def state_table(self, table_id: int, *, epoch: int, version: int | None = None) -> StateTable:
        """A table for a new epoch, which reads what earlier epochs committed.

        At a version if one is given.
        """
        # A version that was committed before this epoch has no rows of it: no filter, and the same plan every time.
        until = epoch - 1 if version is None else None
        return StateTable(self._spark, self.storage_table(table_id, version=version, epoch=until), epoch)

    def append(
        self,
        epoch: int,
        mem_tables: Sequence[MemTable],
        *,
        txn_app_id: str,
        txn_version: int,
        user_metadata: str,
        partitions: int = 1,
        spread: bool = False,
        exchange: bool = True,
        computed: DataFrame | None = None,
    ) -> int:
        """Commit the operations of an epoch: one write, one Delta commit, all tables or none.

        Parameters
        ----------
        epoch : the epoch of the rows.
        mem_tables : of any tables of this store. With none, an empty commit still records the transaction.
        txn_app_id, txn_version : Delta skips a write whose version is not above the last of its application.
        user_metadata : names this commit, the same for a repetition and different for anything else (run, epoch and a
            digest of the change set, say). It is read back to tell a skipped write from a written one.
        partitions : tasks that write. Each (table, vnode) is one file, written by one of them.
        spread : divide the rows of a (table, vnode) among the tasks as well, by their keys: a file each. A table of many
            rows would otherwise be sorted and written by one task while the others have ended.
        exchange : without it rows are written by the tasks that have them, up to ``partitions``. If rows come with their
            vnodes, bringing those of a vnode together gains nothing.

        Returns
        -------
        int
            The version of the commit with this metadata, also where it was there before.

        Raises
        ------
        StateError
            Delta skipped the write, and no commit has this metadata: this txn version holds other data.
        """
        rows = self._union(mem_tables) if computed is None else computed
        divided_by = None if not exchange else [TABLE_ID, VNODE, KEY] if spread else [TABLE_ID, VNODE]
        arranged = _arranged(rows.withColumn(EPOCH_COLUMN, F.lit(epoch).cast("bigint")), partitions, divided_by)
        # As write options: left set in the session they would silently drop later writes.
        writer = arranged.write.format("delta").mode("append").option("txnAppId", txn_app_id)
        writer.option("txnVersion", txn_version).option("userMetadata", user_metadata).save(self.path)
        return self._own_commit(epoch, txn_app_id, txn_version, user_metadata)

    def compute(self, epoch: int, mem_tables: Sequence[MemTable], most_bytes: int) -> pa.Table | None:
        """Rows that an epoch writes, computed by one job, sorted for files.

        For small changes, where :attr:`is_plain`. ``None`` where they take more bytes in memory.
        """
        rows = collected(self._union(mem_tables), most_bytes)
        return None if rows is None else _in_file_order(epoch, rows)

    def compute_few(self, epoch: int, mem_tables: Sequence[MemTable], most_bytes: int) -> tuple[pa.Table | None, DataFrame]:
        """As :meth:`compute`, for an unknown number of rows.

        ``None`` where they take more than ``most_bytes`` in memory.

        Returns
        -------
        The rows if they are few, and a frame of them all without the epoch, which Spark holds. Counting them does not
        compute them twice, and brings only a few to the driver.
        """
        # As bytes, not as objects: rows that turn out to be many are read once more, and would fill the heap.
        held = local_checkpoint(self._union(mem_tables), level=StorageLevel.MEMORY_AND_DISK)
        most_rows = rows_within(held, most_bytes)
        # Counted before they are brought: of many rows, the few that a limit lets through took seven times as long.
        if held.select(F.lit(1)).limit(most_rows + 1).count() > most_rows:
            return None, held
        return _in_file_order(epoch, held.toArrow()), held

    def append_computed(
        self,
        epoch: int,
        rows: pa.Table,
        *,
        txn_app_id: str,
        txn_version: int,
        user_metadata: str,
        check: Check | None = None,
    ) -> int:
        """Commit what :meth:`compute` gave, without Spark; else as :meth:`append`. ``check``: see :func:`commit_once`."""
        appended = append_rows(
            self.files.table, rows, app_id=txn_app_id, txn_version=txn_version, metadata=user_metadata, check=check
        )
        return self._own_commit(epoch, txn_app_id, txn_version, user_metadata) if appended is None else appended

    @property
    def is_plain(self) -> bool:
        """Whether rows can be written from Arrow."""
        return is_plain_layout(self.layout)

    def _union(self, mem_tables: Sequence[MemTable]) -> DataFrame:
        """Rows of MemTables in stored form, without the epoch.

        So Spark runs the code of an epoch before again.
        """
        rows = list(chain.from_iterable(map(self._stored_rows, mem_tables)))
        return reduce(DataFrame.union, rows) if rows else self._no_rows().drop(EPOCH_COLUMN)

    def _own_commit(self, epoch: int, txn_app_id: str, txn_version: int, user_metadata: str) -> int:
        version = self.find_commit(user_metadata)
        if version is None:
            raise StateError(
                f"{self.path}: epoch {epoch} was not written: {txn_app_id} has committed version {txn_version} or a "
                "later one with other data; another run computed this epoch, start again from what it committed"
            )
        return version

    def find_commit(self, user_metadata: str) -> int | None:
        """The version of the newest commit with this metadata."""
        for limit in (_RECENT_COMMITS, None):
            for commit in latest_commits(self.path, limit):
                if commit.user_metadata == user_metadata:
                    return commit.version
        return None

    def _stored_rows(self, mem_table: MemTable) -> Iterator[DataFrame]:
        texts = self._stored_texts(mem_table.desc)
        for rows in mem_table.uncarried:
            yield self._stored_columns(mem_table.desc).of(rows) if texts is None else select(rows, texts)
        for carrier in mem_table.carriers:
            structs = [self._stored_struct(mem_table.desc)]
            structs += [self._stored_struct(desc, struct) for struct, desc in carrier.fused_columns.items()]
            yield where(carrier.frame.select(F.inline(F.array(*structs))), f"{WEIGHT_COLUMN} != 0")

    def _stored_struct(self, desc: StateTableDesc, struct: str | None = None) -> Column:
        texts = self._stored_texts(desc, struct)
        return F.struct(*self._stored_columns(desc, struct)) if texts is None else F.expr(f"struct({', '.join(texts)})")

    def _stored_columns(self, desc: StateTableDesc, struct: str | None = None) -> Columns:
        _, slots = self._table(desc.table_id)
        return _stored_columns(jvm_of_columns(), desc, slots, self.layout.slots, struct)

    def _stored_texts(self, desc: StateTableDesc, struct: str | None = None) -> tuple[str, ...] | None:
        _, slots = self._table(desc.table_id)
        return _stored_texts(jvm_of_columns(), desc, slots, self.layout.slots, struct)

    def stored_form(self, table_id: int, rows: DataFrame, epoch: Column) -> DataFrame:
        """A table's columns and ``_weight`` in stored form.

        ``epoch`` is a column of the frame.
        """
        columns = self._stored_columns(self._table(table_id)[0])
        return rows.select(*columns, epoch.cast("bigint").alias(EPOCH_COLUMN))

    def _no_rows(self) -> DataFrame:
        """No stored rows, in a form that the optimizer prunes joins by."""
        fields = [f"CAST(NULL AS {slot.data_type}) AS {slot.name}" for slot in self.layout.slots]
        fixed = [f"CAST(NULL AS BINARY) AS {KEY}", *(f"CAST(NULL AS BIGINT) AS {c}" for c in (EPOCH_COLUMN, WEIGHT_COLUMN))]
        partition = [f"CAST(NULL AS INT) AS {c}" for c in (TABLE_ID, VNODE)]
        return lazy(self._spark.sql(f"SELECT {', '.join([*fixed, *fields, *partition])} WHERE false"))

    def slots_of(self, table_id: int) -> TableSlots:
        """Storage of a table's columns."""
        return self._table(table_id)[1]

    def _table(self, table_id: int) -> tuple[StateTableDesc, TableSlots]:
        if table_id not in self._by_id:
            raise StateError(f"{self.path} has no table_id {table_id}; it has {sorted(self._by_id)}")
        return self._by_id[table_id]


def _arranged(rows: DataFrame, partitions: int, divided_by: Sequence[str] | None) -> DataFrame:
    """Rows in key order, one file a task and (table, vnode)."""
    divided = rows.coalesce(partitions) if divided_by is None else rows.repartition(partitions, *divided_by)
    return divided.sortWithinPartitions(TABLE_ID, VNODE, KEY)


def _in_file_order(epoch: int, rows: pa.Table) -> pa.Table:
    rows = rows.append_column(EPOCH_COLUMN, pa.array([epoch] * rows.num_rows, pa.int64()))
    return rows.sort_by([(TABLE_ID, "ascending"), (VNODE, "ascending"), (KEY, "ascending")])


@lru_cache(maxsize=4096)
def _stored_texts(
    _jvm: int, desc: StateTableDesc, slots: TableSlots, layout: tuple[Slot, ...], struct: str | None
) -> tuple[str, ...] | None:
    """Stored columns of a table in SQL, without the epoch.

    ``None`` where keys are not encoded by a function, or a column is an interval.

    ``struct`` is the struct column that holds the table's own columns, if one does.
    """
    own = _own_columns(struct)
    vnode = table_vnode_sql(desc.schema, desc.vnode_count, own)
    key = storage_key_sql(desc.schema.columns, desc.schema.storage_key, own)
    filled = {column.slot.name: column.write_sql(own) for column in slots.columns if column.slot is not None}
    if vnode is None or key is None or None in filled.values():
        return None
    values = {slot.name: filled.get(slot.name) or f"CAST(NULL AS {slot.data_type})" for slot in layout}
    weight = f"CAST({own(WEIGHT)} AS BIGINT)"
    stored = {TABLE_ID: str(desc.table_id), VNODE: vnode, KEY: key, WEIGHT_COLUMN: weight, **values}
    return tuple(f"{value} AS {name}" for name, value in stored.items())


@lru_cache(maxsize=4096)
def _stored_columns(
    _jvm: int, desc: StateTableDesc, slots: TableSlots, layout: tuple[Slot, ...], struct: str | None
) -> Columns:
    """As :func:`_stored_texts`, of any table and in any session.

    Kept: to build them takes some hundred calls into the JVM.
    """
    text = _own_columns(struct)

    def own(name: str) -> Column:
        return F.col(text(name))

    filled: dict[str, Column] = {}
    for column in slots.columns:
        value = column.write(text)
        if column.slot is not None and value is not None:
            filled[column.slot.name] = value
    empty = [s for s in layout if s.name not in filled]
    filled |= {s.name: F.expr(f"CAST(NULL AS {s.data_type}) AS {s.name}") for s in empty}
    return Columns(
        [
            F.lit(desc.table_id).alias(TABLE_ID),
            table_vnode(desc.schema, desc.vnode_count, own).alias(VNODE),
            encode_storage_key(desc.schema.columns, desc.schema.storage_key, own).alias(KEY),
            own(WEIGHT).cast("bigint").alias(WEIGHT_COLUMN),
            *[filled[s.name] for s in layout],
        ]
    )


def _own_columns(struct: str | None) -> Callable[[str], str]:
    """SQL names of a table's columns, or of fields of a struct."""
    return quoted if struct is None else lambda name: f"{struct}.{quoted(name)}"
