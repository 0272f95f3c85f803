"""The uncommitted operations of one epoch on one state table."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from state_lib.constants import EPOCH, STATE_WEIGHT, WEIGHT
from state_lib.errors import StateError
from state_lib.row_encoding import encode_row, encoded_parts, parse_type
from state_lib.row_encoding.spark_codec import quoted
from state_lib.table_schema import MergeRule, StateTableDesc


@dataclass(frozen=True, slots=True)
class Carrier:
    """A change set whose rows carry rows of other tables of the same store: one pass computes them all.

    Parameters
    ----------
    frame : the table's columns, ``_weight`` (0 where a row is there only for what it carries), and the riders.
    fused_columns : a column for each other table, a struct of that table's columns and ``_weight``; NULL where there is no row.
    """

    frame: DataFrame
    fused_columns: Mapping[str, StateTableDesc]


class MemTable:
    """Change sets as they came, and single rows by their encoded key; the store's append writes both.

    Single rows of a ``NEWEST`` table replace each other, so that the last operation on a key is the one that stays; of
    a ``SUM`` table their weights add up.
    """

    def __init__(self, desc: StateTableDesc) -> None:
        self.desc = desc
        self.carriers: list[Carrier] = []
        self._change_sets: list[DataFrame] = []
        self._rows: dict[Hashable, tuple[tuple[Any, ...], int]] = {}
        self._parts = encoded_parts(desc.schema.columns, desc.schema.storage_key)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written (a change set may still turn out to have no rows)."""
        return not self.has_change_sets and not self._rows

    @property
    def has_change_sets(self) -> bool:
        """Whether a whole change set was written."""
        return bool(self._change_sets or self.carriers)

    def write(self, change_set: DataFrame, carrying: Mapping[str, StateTableDesc] | None = None) -> None:
        """Take a change set: the table's columns and ``_weight``, in any order.

        Parameters
        ----------
        carrying : columns with rows of other tables of the same store, as :class:`Carrier` has them. They are written with
            this table; a read of the other table during the epoch does not see them.

        Raises
        ------
        StateError
            A column is missing, or single rows of a ``NEWEST`` table were written before.
        """
        wanted = [*(column.name for column in self.desc.schema.columns), WEIGHT]
        given = change_set.columns
        missing = [name for name in wanted if name not in given]
        if missing:
            raise StateError(
                f"state table {self.desc.schema.label} (table_id {self.desc.table_id}): the change set lacks "
                f"{missing}; it has {given}"
            )
        if self._rows:
            self._check_unmixed()
        if carrying:
            self.carriers.append(Carrier(change_set, dict(carrying)))
            return
        self._change_sets.append(change_set if given == wanted else change_set.selectExpr(*map(quoted, wanted)))

    def put(self, row: tuple[Any, ...], weight: int) -> None:
        """Take one row, in the order of the table's columns: inserted (weight > 0) or a tombstone (weight < 0)."""
        if self.has_change_sets:
            self._check_unmixed()
        if self.desc.schema.merge is MergeRule.NEWEST:
            self._rows[self.encoded_key(row)] = (row, weight)
            return
        identity = (self.encoded_key(row), _hashable(row))
        total = weight + self._rows.get(identity, (row, 0))[1]
        if total:
            self._rows[identity] = (row, total)
        else:
            self._rows.pop(identity, None)

    def find(self, key: Sequence[Any]) -> tuple[bool, Row | None]:
        """Whether a single row of a ``NEWEST`` table was written under a key, and the row (None: its tombstone)."""
        row, weight = self._rows.get(encode_row(key, self._parts), (None, 0))
        if row is None:
            return False, None
        names = [column.name for column in self.desc.schema.columns]
        return True, Row(*names)(*row) if weight > 0 else None

    def encoded_key(self, row: Sequence[Any]) -> bytes:
        """The encoded storage primary key of a row."""
        return encode_row(self.key_of(row), self._parts)

    def key_of(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """The storage primary key of a row."""
        values = dict(zip((c.name for c in self.desc.schema.columns), row, strict=True))
        return tuple(values[part.column] for part in self.desc.schema.storage_key)

    def change_set(self, spark: SparkSession) -> DataFrame:
        """All operations: the table's columns and ``_weight``; no Spark action."""
        names = [*(quoted(column.name) for column in self.desc.schema.columns), WEIGHT]
        carried = [carrier.frame.selectExpr(*names).where(f"{WEIGHT} != 0") for carrier in self.carriers]
        return reduce(DataFrame.union, [*self.uncarried(spark), *carried] or [self._as_frame(spark)])

    def uncarried(self, spark: SparkSession) -> list[DataFrame]:
        """The operations but for :attr:`carriers`, as :meth:`change_set` has them."""
        return [*self._change_sets, *([self._as_frame(spark)] if self._rows else [])]

    def _as_frame(self, spark: SparkSession) -> DataFrame:
        fields = [T.StructField(c.name, parse_type(c.data_type)) for c in self.desc.schema.columns]
        schema = T.StructType([*fields, T.StructField(WEIGHT, T.LongType())])
        return spark.createDataFrame([(*row, weight) for row, weight in self._rows.values()], schema)

    def runs(self, spark: SparkSession, epoch: int) -> DataFrame:
        """All operations as a run of the epoch, to be merged over those of the storage table."""
        columns = [F.col(quoted(column.name)) for column in self.desc.schema.columns]
        return self.change_set(spark).select(
            *columns, F.col(WEIGHT).alias(STATE_WEIGHT), F.lit(epoch).cast("bigint").alias(EPOCH)
        )

    def _check_unmixed(self) -> None:
        if self.desc.schema.merge is MergeRule.NEWEST:
            raise StateError(
                f"state table {self.desc.schema.label} (table_id {self.desc.table_id}): single rows and change sets in "
                "one epoch, and the newest wins: which is newer is not known; write one or the other"
            )


def _hashable(value: Any) -> Hashable:
    """Any collected value as a dictionary key; equal rows, and rows with NaNs, are one."""
    if isinstance(value, Mapping):
        return ("map", frozenset((_hashable(k), _hashable(v)) for k, v in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(item) for item in value)
    if isinstance(value, bytearray):
        return bytes(value)
    return "NaN" if isinstance(value, float) and value != value else value  # noqa: PLR0124
