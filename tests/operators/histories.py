"""Hypothesis strategies for histories: epochs of inserts, deletes and updates over the lab's relations."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Turns operations into change sets, as sources would give them: one −1 and one +1 row a key at most."""

    def __init__(self) -> None:
        self.keyed: dict[str, dict[int, Row]] = {"t": {}, "r": {}}
        self.bag: dict[Row, int] = {}
        self.next_row_id = 1

    def epoch(self, operations: list[tuple[str, Any, Row | None]]) -> Changes:
        changes: dict[str, dict[Row, int]] = {"t": {}, "r": {}, "m": {}, "e": {}}

        def add(name: str, row: Row, weight: int) -> None:
            changes[name][row] = changes[name].get(row, 0) + weight

        for name, key, row in operations:
            if name in self.keyed:
                old = self.keyed[name].pop(key, None)
                if old is not None:
                    add(name, old, -1)
                if row is not None:
                    self.keyed[name][key] = (key, *row)
                    add(name, (key, *row), 1)
            elif name == "m":
                assert row is not None
                if key and self.bag.get(row, 0) > 0:
                    self.bag[row] -= 1
                    add("m", row, -1)
                else:
                    self.bag[row] = self.bag.get(row, 0) + 1
                    add("m", row, 1)
            else:
                assert row is not None
                add("e", (*row, self.next_row_id), 1)
                self.next_row_id += 1
        return {name: [(r, w) for r, w in rows.items() if w] for name, rows in changes.items() if any(rows.values())}


def epochs_of(history: list[list[Any]]) -> list[Mapping[str, list[tuple[Row, int]]]]:
    """The change sets of a history, epoch by epoch."""
    source = Source()
    return [source.epoch(operations) for operations in history]
