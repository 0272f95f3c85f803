"""Difference of a view between two epochs: rows added, removed and changed.

Rows are matched by the view's key: by its columns where readers see them, else by the hidden one of the published table. A view
without a key is compared as a bag. So is one that was rebuilt in between, unless both tables have its key and no key twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.inspect.comparable import comparable
from relstate_dagster.jobs.inspect.health import check_tables
from relstate_dagster.jobs.inspect.readable_epochs import ReadableEpoch, readable_epochs, two_epochs
from relstate_dagster.jobs.view_epoch.shown_values import shown_row
from relstate_dagster.state_lib.constants import VIEW_KEY
from relstate_dagster.state_lib.errors import EpochError
from relstate_dagster.state_lib.local_checkpoint import local_checkpoint
from relstate_dagster.state_lib.sql_text import quoted

ADDED: Final = "added"
REMOVED: Final = "removed"
CHANGED: Final = "changed"

_OLD: Final = "_old"
_NEW: Final = "_new"
_KEY: Final = "_key"


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that differs.

    Parameters
    ----------
    change : ``added``, ``removed`` or ``changed``.
    copies : how often it was added or removed: more than once only in a view without a key.
    old, new : the row by column; ``None`` where there is none.
    differing : of a changed row, the columns that differ.
    """

    change: str
    copies: int
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None
    differing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewDiff:
    """Difference of a view between two epochs.

    Parameters
    ----------
    key : the columns by which rows were matched; ``()`` where their key is hidden, ``None`` where they are a bag.
    added, removed, changed : how many rows.
    rows : the first of them, by key.
    notes : what is to be known of the comparison besides, a sentence each.
    """

    view: str
    since: ReadableEpoch
    until: ReadableEpoch
    columns: tuple[str, ...]
    key: tuple[str, ...] | None
    added: int
    removed: int
    changed: int
    rows: tuple[RowChange, ...]
    notes: tuple[str, ...] = ()

    @property
    def differing_rows(self) -> int:
        """Number of differing rows.

        One that was added or removed several times counts each time.
        """
        return self.added + self.removed + self.changed

    def for_show(self, *, as_json: bool) -> ViewDiff:
        """With the values of rows as people, or programs, read them."""
        rows = (
            replace(row, old=shown_row(row.old, as_json=as_json), new=shown_row(row.new, as_json=as_json)) for row in self.rows
        )
        return replace(self, rows=tuple(rows))


def view_diff(
    spark: SparkSession,
    warehouse: Warehouse,
    view: str,
    since: int | None = None,
    until: int | None = None,
    *,
    limit: int = 20,
) -> ViewDiff:
    """Compare a view as of two epochs, by default its last two.

    Parameters
    ----------
    limit : how many rows are returned. All are counted.

    Raises
    ------
    DeclarationError : there is no such view.
    EpochError : the view has not reached an epoch, or its rows of then are gone.
    """
    state = warehouse.read()
    entry = state.view(view)
    first, last = two_epochs(warehouse, entry, readable_epochs(warehouse, state, entry), since, until)
    check_tables(warehouse, state, entry)
    return _Comparison.of(spark, warehouse, entry, first, last).result(limit)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Two frames with equal columns ``_c0``, ``_c1``, …, and the key that matches rows.

    Parameters
    ----------
    key : SQL texts; ``None`` for a bag.
    """

    entry: ViewEntry
    ends: tuple[ReadableEpoch, ReadableEpoch]
    frames: tuple[DataFrame, DataFrame]
    columns: tuple[str, ...]
    key: tuple[str, ...] | None
    key_columns: tuple[str, ...] | None
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls, spark: SparkSession, warehouse: Warehouse, entry: ViewEntry, first: ReadableEpoch, last: ReadableEpoch
    ) -> _Comparison:
        target = warehouse.target(entry.name)
        tables = [target.rows(spark, at.version) for at in (first, last)]
        columns, notes = _common_columns(tables, first, last)
        if not columns:
            raise EpochError(
                f"view {entry.name}: epochs {first.epoch} and {last.epoch} have no column in common; it has become another view"
            )
        frames = [
            t.select(*(F.col(quoted(c)).alias(f"_c{n}") for n, c in enumerate(columns)), F.col(quoted(VIEW_KEY)).alias(_KEY))
            for t in tables
        ]
        key, key_columns = _key_of(entry, columns)
        if first.generation != last.generation:
            notes += [f"the view was rebuilt between epochs {first.epoch} and {last.epoch}"]
            if key is not None and (key == (_KEY,) or any(_has_duplicates(frame, key) for frame in frames)):
                notes += ["the rows of the two have no key in common, so equal rows are counted"]
                key = key_columns = None
        return cls(entry, (first, last), (frames[0], frames[1]), tuple(columns), key, key_columns, tuple(notes))

    def result(self, limit: int) -> ViewDiff:
        differing = local_checkpoint(self._as_bags() if self.key is None else self._by_key())
        found = differing.groupBy("change").agg(F.sum("copies").alias("n")).collect()
        counts = {row["change"]: int(row["n"]) for row in found}
        first, last = self.ends
        ordered = differing.orderBy("order", "change").drop("order")
        return ViewDiff(
            self.entry.name,
            first,
            last,
            self.columns,
            self.key_columns,
            counts.get(ADDED, 0),
            counts.get(REMOVED, 0),
            counts.get(CHANGED, 0),
            tuple(self._row(row) for row in ordered.limit(limit).collect()),
            self.notes,
        )

    def _row(self, row: T.Row) -> RowChange:
        differing = tuple(self.columns[n] for n in row["differing"] or ())
        return RowChange(row["change"], int(row["copies"]), self._values(row[_OLD]), self._values(row[_NEW]), differing)

    def _values(self, row: T.Row | None) -> dict[str, Any] | None:
        # Recursively: JSON would have a row within a row as an array.
        return None if row is None else dict(zip(self.columns, row.asDict(recursive=True).values(), strict=True))

    def _names(self) -> list[str]:
        return [f"_c{n}" for n in range(len(self.columns))]

    def _stacked(self, keep: Sequence[str]) -> DataFrame:
        """Rows of both frames: each as one column of old or new, with its key."""
        row = f"struct({', '.join(self._names())})"
        sides = []
        for frame, is_old in zip(self.frames, (True, False), strict=True):
            grouped = [f"{sql} AS _g{n}" for n, sql in enumerate(keep)]
            own, other = (_OLD, _NEW) if is_old else (_NEW, _OLD)
            both = [f"{row} AS {own}", f"IF(false, {row}, NULL) AS {other}"]
            sides.append(frame.selectExpr(*grouped, *(both if is_old else reversed(both))))
        return reduce(DataFrame.union, sides)

    def _by_key(self) -> DataFrame:
        assert self.key is not None
        first = [F.expr(f"first({name}, true) AS {name}") for name in (_OLD, _NEW)]
        groups = [f"_g{n}" for n in range(len(self.key))]
        both = self._stacked(self.key).groupBy(*groups).agg(*first)
        types = [field.dataType for field in self.frames[1].schema.fields[: len(self.columns)]]
        differs = [
            f"IF({comparable(f'{_OLD}._c{n}', t)} <=> {comparable(f'{_NEW}._c{n}', t)}, NULL, {n})" for n, t in enumerate(types)
        ]
        of_both = f"array_compact(array({', '.join(differs)}))"
        is_one = f"{_OLD} IS NULL OR {_NEW} IS NULL"
        change = f"CASE WHEN {_OLD} IS NULL THEN '{ADDED}' WHEN {_NEW} IS NULL THEN '{REMOVED}' ELSE '{CHANGED}' END"
        order = f"struct({', '.join(groups)})" if groups else "0"
        compared = both.selectExpr(
            f"{order} AS order",
            f"{change} AS change",
            "1L AS copies",
            _OLD,
            _NEW,
            f"IF({is_one}, NULL, {of_both}) AS differing",
        )
        return compared.where("differing IS NULL OR size(differing) > 0")

    def _as_bags(self) -> DataFrame:
        schema = self.frames[0].schema
        keep = [comparable(name, schema[name].dataType) for name in self._names()]
        groups = [f"_g{n}" for n in range(len(keep))]
        stacked = self._stacked(keep)
        copies = f"count({_NEW}) - count({_OLD}) AS _n"
        rows = [F.expr(f"first({name}, true) AS {name}") for name in (_OLD, _NEW)]
        summed = stacked.groupBy(*groups).agg(F.expr(copies), *rows).where("_n != 0")
        return summed.selectExpr(
            f"struct({', '.join(groups)}) AS order",
            f"IF(_n > 0, '{ADDED}', '{REMOVED}') AS change",
            "abs(_n) AS copies",
            f"IF(_n < 0, {_OLD}, NULL) AS {_OLD}",
            f"IF(_n > 0, {_NEW}, NULL) AS {_NEW}",
            "CAST(NULL AS array<int>) AS differing",
        )


def _common_columns(tables: Sequence[DataFrame], first: ReadableEpoch, last: ReadableEpoch) -> tuple[list[str], list[str]]:
    """Columns that two tables have in common, and a sentence for each other one."""
    old, new = ({f.name: f.dataType for f in t.schema.fields if f.name != VIEW_KEY} for t in tables)
    columns = [name for name in new if name in old and old[name].simpleString() == new[name].simpleString()]
    notes = []
    for name in dict.fromkeys([*old, *new]):
        if name not in columns and name in old and name in new:
            notes.append(
                f"column {name} was of type {old[name].simpleString()} and is of type {new[name].simpleString()}; "
                "it is not compared"
            )
        elif name not in columns:
            notes.append(f"only epoch {(first if name in old else last).epoch} has a column {name}; it is not compared")
    return columns, notes


def _key_of(entry: ViewEntry, columns: Sequence[str]) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """The key that matches a view's rows, as SQL texts, and its columns."""
    key = visible_key(entry)
    if key is None:
        return None, None
    if key and set(key) <= set(columns):
        return tuple(f"_c{columns.index(name)}" for name in key), key
    if entry.plan.stream_key == ():
        return ("0",), ()
    return (_KEY,), ()


def visible_key(entry: ViewEntry) -> tuple[str, ...] | None:
    """Visible columns that tell a view's rows apart.

    ``()`` where some are hidden, ``None`` without a key.
    """
    key = entry.plan.stream_key
    if key is None:
        return None
    shown = {o.column: o.name for o in reversed(entry.plan.output)}
    return tuple(shown[column] for column in key) if all(column in shown for column in key) else ()


def _has_duplicates(frame: DataFrame, key: Sequence[str]) -> bool:
    keys = frame.selectExpr(*(f"{sql} AS _g{n}" for n, sql in enumerate(key)))
    return not keys.groupBy(*keys.columns).count().where("count > 1").isEmpty()
