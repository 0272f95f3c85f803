"""Change streams over base tables: a load, then epochs of mixed inserts, updates and deletes, seeded and deterministic.

====== ===========================================================================================================
epoch  what happens
====== ===========================================================================================================
1      the load: all rows but a reserve
2      inserts from the reserve, updates, deletes; some keys are hit several times, some rows come and go at once
3      a mass delete: whole groups of every larger table vanish
4      nothing at all
5      the vanished rows come back, some of them changed; updates and deletes besides
6      mixed again: the rest of the reserve
====== ===========================================================================================================

An update takes the values of some columns from other rows, so that rows move between the groups that there are, and
sometimes sets a column to NULL.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relstate_dagster.jobs.plan.relation import Relation

Row = tuple[Any, ...]
#: One epoch: the net changes of each table as (row, weight), at most one −1 and one +1 a key.
Changes = dict[str, list[tuple[Row, int]]]

EPOCHS = 6
_EMPTY_EPOCH = 4
#: Tables with fewer rows are loaded as a whole and only updated: a suite's constants are in them.
_SMALL = 40
_RESERVED = 0.12
_MASS_DELETED = 0.4


@dataclass(slots=True)
class _Table:
    """One table while its history is made up."""

    relation: Relation
    random: random.Random
    churn: float
    fixed: frozenset[str] = frozenset()
    rows: dict[Row, Row] = field(default_factory=dict)
    reserve: list[Row] = field(default_factory=list)
    vanished: list[Row] = field(default_factory=list)
    _key: list[int] = field(init=False)
    _free: list[int] = field(init=False)

    def __post_init__(self) -> None:
        names = [c.name for c in self.relation.columns]
        self._key = [names.index(k) for k in self.relation.key or ()]
        self._free = [n for n, c in enumerate(names) if n not in self._key and c not in self.fixed]

    def key(self, row: Row) -> Row:
        return tuple(row[n] for n in self._key)

    def load(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if len(rows) >= _SMALL and self.random.random() < _RESERVED:
                self.reserve.append(row)
            else:
                self.rows[self.key(row)] = row

    def insert(self, count: int) -> None:
        for row in self.reserve[:count]:
            self.rows[self.key(row)] = row
        del self.reserve[:count]

    def update(self, count: int) -> None:
        keys = self._some(count)
        # A few keys are hit a second and a third time.
        for key in [*keys, *keys[: max(1, len(keys) // 5)], *keys[:1]]:
            self.rows[key] = self._changed(self.rows[key])

    def delete(self, count: int) -> None:
        keys = self._some(count)
        rows = [self.rows.pop(key) for key in keys]
        # Some come back within the epoch, changed, and so are updates in the end.
        for row in rows[: len(rows) // 3]:
            self.rows[self.key(row)] = self._changed(row)

    def delete_groups(self) -> None:
        """Delete all rows of some values of a column: whole groups at once."""
        if not self._free or len(self.rows) < _SMALL:
            return
        column = self._free[0]
        values = sorted({str(row[column]) for row in self.rows.values()})
        gone = set(self.random.sample(values, int(len(values) * _MASS_DELETED)))
        self.vanished = [row for row in self.rows.values() if str(row[column]) in gone]
        for row in self.vanished:
            del self.rows[self.key(row)]

    def refill(self) -> None:
        for row in self.vanished:
            key = self.key(row)
            if key not in self.rows:
                self.rows[key] = self._changed(row) if self.random.random() < self.churn else row
        self.vanished = []

    def _changed(self, row: Row) -> Row:
        values = list(row)
        donors = list(self.rows.values()) if len(self.rows) < _SMALL else [self.rows[k] for k in self._some(1)]
        for column in self.random.sample(self._free, min(len(self._free), self.random.randint(1, 3))):
            donor = self.random.choice(donors) if donors else row
            values[column] = None if self.random.random() < 0.05 else donor[column]
        return tuple(values)

    def _some(self, count: int) -> list[Row]:
        keys = list(self.rows)
        return self.random.sample(keys, min(count, len(keys)))


def history(
    relations: Mapping[str, Relation],
    rows: Mapping[str, Sequence[Row]],
    *,
    seed: int,
    churn: float,
    fixed: frozenset[str] = frozenset(),
) -> list[Changes]:
    """The epochs of all tables.

    Parameters
    ----------
    relations : the tables, each with a key.
    rows : all rows of each table, those that arrive late included.
    seed : of everything random.
    churn : the fraction of a table's rows that an epoch updates; half as many are deleted.
    fixed : columns that no update changes.
    """
    tables = {name: _Table(relation, random.Random(f"{seed} {name}"), churn, fixed) for name, relation in relations.items()}
    epochs: list[Changes] = []
    for epoch in range(1, EPOCHS + 1):
        changes: Changes = {}
        for name, table in tables.items():
            before = dict(table.rows)
            _apply(epoch, table, rows[name])
            net = _net(before, table.rows)
            if net:
                changes[name] = net
        epochs.append(changes)
    return epochs


def _apply(epoch: int, table: _Table, rows: Sequence[Row]) -> None:
    if epoch == 1:
        table.load(rows)
        return
    if epoch == _EMPTY_EPOCH:
        return
    if epoch == 3:
        table.delete_groups()
        return
    if epoch == 5:
        table.refill()
    is_small = len(table.rows) < _SMALL
    count = max(1, int(len(table.rows) * table.churn))
    table.insert(len(table.reserve) if epoch == EPOCHS else len(table.reserve) // 2)
    # Of a small table every row may be what a query looks for: one is changed, and only in two of the epochs.
    if not is_small or epoch != 5:
        table.update(1 if is_small else count)
    if not is_small:
        table.delete(max(1, count // 2))


def _net(before: Mapping[Row, Row], after: Mapping[Row, Row]) -> list[tuple[Row, int]]:
    net: list[tuple[Row, int]] = []
    for key, row in before.items():
        if after.get(key) != row:
            net.append((row, -1))
    for key, row in after.items():
        if before.get(key) != row:
            net.append((row, 1))
    return net
