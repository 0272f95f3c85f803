"""The uncommitted operations of one epoch on one state table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.state_lib.constants import EPOCH, STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.table_schema import StateTableDesc


@dataclass(frozen=True, slots=True)
class Carrier:
    """A change set whose rows carry rows of other tables.

    One pass computes them all.

    Parameters
    ----------
    frame : the table's columns, ``_weight`` (0 where a row is there only for what it carries), and the riders.
    fused_columns : a column for each other table, a struct of that table's columns and ``_weight``; NULL where there is no row.
    """

    frame: DataFrame
    fused_columns: Mapping[str, StateTableDesc]


class MemTable:
    """Change sets as they came; the store's append writes them."""

    def __init__(self, desc: StateTableDesc) -> None:
        self.desc = desc
        self.carriers: list[Carrier] = []
        self._change_sets: list[DataFrame] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written (a change set may still turn out to have no rows)."""
        return not (self._change_sets or self.carriers)

    def write(self, change_set: DataFrame, carrying: Mapping[str, StateTableDesc] | None = None) -> None:
        """Take a change set: the table's columns and ``_weight``, in any order.

        Parameters
        ----------
        carrying : columns with rows of other tables of the same store, as :class:`Carrier` has them. They are written with
            this table; a read of the other table during the epoch does not see them.

        Raises
        ------
        StateError
            A column is missing.
        """
        wanted = [*(column.name for column in self.desc.schema.columns), WEIGHT]
        given = change_set.columns
        missing = [name for name in wanted if name not in given]
        if missing:
            raise StateError(
                f"state table {self.desc.schema.label} (table_id {self.desc.table_id}): the change set lacks "
                f"{missing}; it has {given}"
            )
        if carrying:
            self.carriers.append(Carrier(change_set, dict(carrying)))
            return
        self._change_sets.append(change_set if given == wanted else change_set.selectExpr(*map(quoted, wanted)))

    def change_set(self) -> DataFrame:
        """All operations of a non-empty table: its columns and ``_weight``.

        No Spark action.
        """
        names = [*(quoted(column.name) for column in self.desc.schema.columns), WEIGHT]
        carried = [carrier.frame.selectExpr(*names).where(f"{WEIGHT} != 0") for carrier in self.carriers]
        return reduce(DataFrame.union, [*self.uncarried, *carried])

    @property
    def uncarried(self) -> list[DataFrame]:
        """The operations but for :attr:`carriers`, as :meth:`change_set` has them."""
        return self._change_sets

    def runs(self, epoch: int) -> DataFrame:
        """All operations as a run of the epoch, to be merged over storage."""
        columns = [F.col(quoted(column.name)) for column in self.desc.schema.columns]
        return self.change_set().select(*columns, F.col(WEIGHT).alias(STATE_WEIGHT), F.lit(epoch).cast("bigint").alias(EPOCH))
