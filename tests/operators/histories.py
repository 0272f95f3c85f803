"""Hypothesis strategies for histories: epochs of inserts, deletes and updates over the lab's relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from tests.operators.lab import Row, decimal

Changes = dict[str, list[tuple[Row, int]]]

_groups = st.one_of(st.none(), st.integers(0, 2))
_texts = st.sampled_from([None, "", "a", "b", "a\x00b", "😀"])
_keys = st.integers(0, 5)
_values = st.one_of(st.none(), st.integers(-300, 300).map(decimal))

#: An operation: (relation, key or None, row or None for a delete).
_operations = st.one_of(
    st.tuples(st.just("t"), _keys, st.one_of(st.none(), st.tuples(_groups, _texts, _values))),
    st.tuples(st.just("r"), _keys, st.one_of(st.none(), st.tuples(_groups, st.one_of(st.none(), st.integers(0, 9))))),
    st.tuples(st.just("m"), st.booleans(), st.tuples(_groups, _texts)),
    st.tuples(st.just("e"), st.none(), st.tuples(_groups, _texts)),
)

histories = st.lists(st.lists(_operations, max_size=10), min_size=2, max_size=4)


class Source:
    """Turns operations into change sets, as sources would give them: one −1 and one +1 row a key at most.

    Parameters
    ----------
    keyed : relations whose rows begin with their key, a value or a tuple of such.
    bags : relations without a key, of which the same row may be there more than once.
    append_only : relations whose rows end with an id that they are given here.
    """

    def __init__(
        self, keyed: Sequence[str] = ("t", "r"), bags: Sequence[str] = ("m",), append_only: Sequence[str] = ("e",)
    ) -> None:
        self.keyed: dict[str, dict[Any, Row]] = {name: {} for name in keyed}
        self.bags: dict[str, dict[Row, int]] = {name: {} for name in bags}
        self._append_only = append_only
        self.next_row_id = 1

    def epoch(self, operations: list[tuple[str, Any, Row | None]]) -> Changes:
        changes: dict[str, dict[Row, int]] = {name: {} for name in (*self.keyed, *self.bags, *self._append_only)}

        def add(name: str, row: Row, weight: int) -> None:
            changes[name][row] = changes[name].get(row, 0) + weight

        for name, key, row in operations:
            if name in self.keyed:
                old = self.keyed[name].pop(key, None)
                if old is not None:
                    add(name, old, -1)
                if row is not None:
                    new = (*(key if isinstance(key, tuple) else (key,)), *row)
                    self.keyed[name][key] = new
                    add(name, new, 1)
            elif name in self.bags:
                assert row is not None
                bag = self.bags[name]
                weight = -1 if key and bag.get(row, 0) > 0 else 1
                bag[row] = bag.get(row, 0) + weight
                add(name, row, weight)
            else:
                assert row is not None
                add(name, (*row, self.next_row_id), 1)
                self.next_row_id += 1
        return {name: [(r, w) for r, w in rows.items() if w] for name, rows in changes.items() if any(rows.values())}


def epochs_of(history: list[list[Any]], source: Source | None = None) -> list[Mapping[str, list[tuple[Row, int]]]]:
    """The change sets of a history, epoch by epoch."""
    source = source or Source()
    return [source.epoch(operations) for operations in history]
