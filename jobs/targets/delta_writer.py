"""Commits of epochs to a published Delta table, by the driver or by Spark.

Rows that the driver holds take one delta-rs commit and no Spark job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.declare.table_properties import DELETION_VECTORS
from relstate_dagster.jobs.engine.workloads import transaction
from relstate_dagster.jobs.targets.chain import Chain, EpochCommit, epoch_txn_version
from relstate_dagster.jobs.targets.declared_table import DeclaredTable
from relstate_dagster.jobs.targets.delta_table import commented, driver_writes, merge_small_files, set_properties
from relstate_dagster.jobs.targets.protocol import IS_THERE, OP, Changes, Published, TargetFound, TargetWriter
from relstate_dagster.state_lib.constants import VIEW_KEY
from relstate_dagster.state_lib.errors import EpochError, StateError
from relstate_dagster.state_lib.lake.address import table_reference
from relstate_dagster.state_lib.lake.commit import commit_once, committing, write_deltalake
from relstate_dagster.state_lib.lake.log import DeltaLog, rows_changed, rows_copied
from relstate_dagster.state_lib.lake.table import DeltaTable, OpenedTable
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.sql_type import sql_type
from relstate_dagster.state_lib.tuning import tuning

_CHANGES: Final = "_relstate_changes"


class DeltaWriter(TargetWriter):
    """A published Delta table, opened for the commit of one epoch.

    Parameters
    ----------
    known : its newest version that the catalog knows, upkeep since included; what is written is written on it.
    is_empty : the table was made just now.
    replaces : the rows of an earlier generation are to be replaced.
    """

    def __init__(
        self,
        table: OpenedTable,
        chain: Chain,
        declared: DeclaredTable,
        wanted: EpochCommit,
        known: int,
        *,
        is_empty: bool = False,
        replaces: bool = False,
        done: int | None = None,
    ) -> None:
        self._table = table
        self._chain = chain
        self._declared = declared
        self._wanted = wanted
        self._known = known
        self.done = done
        size, rows = table.totals()
        self.found = TargetFound(size, driver_writes(declared, table.opened()), is_empty, replaces, rows)

    def set_properties(self, session: SparkSession) -> None:
        """Set properties that the view declares by now."""
        if not self.found.is_empty and set_properties(session, self._table, self._declared):
            self._known = self._chain.after(self._known).known

    def append(self, session: SparkSession, changes: Changes) -> Published:
        """Append rows, none of whose keys the table has."""
        changes = self._checked(changes)
        if isinstance(changes, DataFrame):
            return self._save(changes, "append")
        rows = changes.drop_columns([IS_THERE, OP])

        def write(newest: DeltaTable, properties: Any) -> dict[str, Any]:
            write_deltalake(newest, rows, mode="append", commit_properties=properties)
            return {"num_target_rows_inserted": rows.num_rows}

        return self._committed(write)

    def merge(self, session: SparkSession, changes: Changes) -> Published:
        """Insert, replace and delete rows by their key."""
        changes = self._checked(changes)
        if isinstance(changes, DataFrame):
            return self._merge_by_spark(session, changes)
        rows = changes.drop_columns([IS_THERE])
        rows = rows.set_column(rows.schema.get_field_index(OP), OP, rows[OP].cast(pa.int64()))

        def write(newest: DeltaTable, properties: Any) -> dict[str, Any]:
            merging = newest.merge(
                rows,
                f"v.`{VIEW_KEY}` = c.`{VIEW_KEY}`",
                source_alias="c",
                target_alias="v",
                commit_properties=properties,
            )
            merging = merging.when_matched_delete(f"c.`{OP}` < 0")
            merging = merging.when_matched_update_all(f"c.`{OP}` > 0", except_cols=[OP])
            merging = merging.when_not_matched_insert_all(f"c.`{OP}` > 0", except_cols=[OP])
            return merging.execute()

        return self._committed(write)

    def replace(self, session: SparkSession, changes: DataFrame, keys: pa.ChunkedArray) -> Published:
        """Insert rows, and delete those with some keys.

        MERGE joins the whole table with the change set: by an outer join where some rows are new, which sends every row of the
        table through a shuffle. A condition on the key is asked of each row where it is read.
        """
        literals = ", ".join(f"X'{key.hex()}'" for key in keys.to_pylist())
        where = f"{quoted(VIEW_KEY)} IN ({literals})"
        # Spark does not count rows of a file that goes as a whole.
        return replace(self._save(self._checked(changes), "overwrite", replaceWhere=where), rows_deleted=len(keys))

    def overwrite(self, session: SparkSession, changes: DataFrame) -> Published:
        """Replace all rows, and the columns of an earlier generation."""
        changes = self._checked(changes)
        if self.found.replaces:
            return self._save(changes, "overwrite", self._declared.layout.partitioned_by, overwriteSchema="true")
        published = self._save(changes, "overwrite")
        return replace(published, rows_deleted=self.found.rows or 0)

    def maintain(self) -> None:
        """Merge small files, in a commit that changes no rows."""
        merge_small_files(self._table, self._declared)

    @property
    def _txn_version(self) -> int:
        return epoch_txn_version(self._wanted.epoch, self._table.transaction_version(self._declared.application))

    def _committed(self, write: Callable[[DeltaTable, Any], dict[str, Any]]) -> Published:
        app, version = self._declared.application, self._txn_version
        properties = committing(app, version, self._wanted.to_json())
        check = self._chain.expect(self._known)
        outcome = commit_once(self._table, app, version, lambda newest: write(newest, properties), check)
        if outcome is None:
            return Published(self._table.latest().version(), 0, 0)
        number, metrics = outcome
        updated = int(metrics.get("num_target_rows_updated", 0))
        inserted = int(metrics.get("num_target_rows_inserted", 0)) + updated
        return Published(number, inserted, int(metrics.get("num_target_rows_deleted", 0)) + updated)

    def _save(self, changes: DataFrame, mode: str, partitions: tuple[str, ...] = (), **options: str) -> Published:
        number = self._ready_for_spark()
        rows = commented(changes.where(F.col(OP) > 0).drop(OP, IS_THERE), self._declared)
        writer = rows.write.format("delta").mode(mode).options(**options).option("userMetadata", self._wanted.to_json())
        if partitions:
            writer = writer.partitionBy(*partitions)
        writer = writer.option("txnAppId", self._declared.application).option("txnVersion", number)
        writer.save(self._table.path)
        return self._written_by_spark()

    def _merge_by_spark(self, session: SparkSession, changes: DataFrame) -> Published:
        number = self._ready_for_spark()
        changes.createOrReplaceTempView(_CHANGES)
        names = [quoted(name) for name, _ in self._declared.columns] + [quoted(VIEW_KEY)]
        sets = ", ".join(f"v.{n} = c.{n}" for n in names)
        values = ", ".join(f"c.{n}" for n in names)
        with transaction(session, self._declared.application, number, self._wanted.to_json()):
            session.sql(
                f"MERGE INTO {table_reference(self._table.path)} v USING {_CHANGES} c "
                f"ON v.{quoted(VIEW_KEY)} = c.{quoted(VIEW_KEY)} "
                f"WHEN MATCHED AND c.{OP} < 0 THEN DELETE WHEN MATCHED THEN UPDATE SET {sets} "
                f"WHEN NOT MATCHED AND c.{OP} > 0 THEN INSERT ({', '.join(names)}) VALUES ({values})"
            )
        session.catalog.dropTempView(_CHANGES)
        return self._written_by_spark()

    def _ready_for_spark(self) -> int:
        """The transaction version of the next commit, after a check that nothing was committed meanwhile."""
        number = self._txn_version
        self._chain.expect(self._known)(self._table.latest())
        return number

    def _written_by_spark(self) -> Published:
        # Spark does not say which version it wrote, nor does every commit beside its own make it fail.
        later = self._chain.after(self._known)
        version = later.made_by(self._wanted)
        if version is None:
            if not later.is_clean:
                self._chain.restore(later)
            problem = f"epoch {self._wanted.epoch} was not published, {self._chain.describe(later)}"
            raise EpochError(f"view {self._declared.view}: {problem}; nothing was lost, run again")
        actions = DeltaLog(self._table.path).commit(version)
        inserted, deleted = rows_changed(actions)
        return Published(version, inserted, deleted, _advice(inserted + deleted, rows_copied(actions)))

    def _checked(self, changes: Changes) -> Changes:
        """Changes without empty texts in partition columns, which Delta would read as NULL.

        Raises
        ------
        StateError : the driver has found one; Spark raises while it computes.
        """
        types = dict(self._declared.columns)
        for column in self._declared.layout.partitioned_by:
            if sql_type(types[column]).name != "string":
                continue
            message = (
                f"view {self._declared.view}: a row has an empty text in {column}, by which the view is PARTITIONED, and Delta "
                f"stores it as NULL there; use CLUSTER BY ({column})"
            )
            if isinstance(changes, DataFrame):
                value = F.col(quoted(column))
                problem = F.raise_error(F.lit(message)).cast("string")
                changes = changes.withColumn(column, F.when(value == "", problem).otherwise(value))
            elif pc.any(pc.equal(changes[column], "")).as_py():
                raise StateError(message)
        return changes


def _advice(changed: int, copied: int) -> tuple[str, ...]:
    """Advice where far more rows were rewritten than have changed."""
    if copied < max(tuning().advised_rows, tuning().advised_times * changed):
        return ()
    return (
        f"{copied:,} rows of the published table were written again beside {changed:,} that have changed: with "
        f"'{DELETION_VECTORS}' = 'true' in the view's TBLPROPERTIES they stay where they are",
    )
