"""Histories: epochs of inserts, deletes and updates over the lab's relations, and the change sets that they give.

Tests draw one history for each of their cases; ``RELSTATE_HISTORIES=50`` draws fifty.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from tests.operators.lab import Row, decimal

Changes = dict[str, list[tuple[Row, int]]]

_HISTORIES = int(os.environ.get("RELSTATE_HISTORIES", "1"))


def seeds_of(name: str) -> list[int]:
    """The seeds of a case's histories: its own, the same on every machine."""
    first = zlib.crc32(name.encode())
    return [first + n for n in range(_HISTORIES)]


def drawn_history(seed: int, epochs: int = 3, operations: int = 12) -> list[list[Any]]:
    """The history of a seed, the same on every machine: of epochs that are never empty, over few values each.

    The first epoch fills the relations; the later ones change, move and delete what is there more often than not.
    """
    draw = random.Random(seed)
    texts, groups = [None, "", "a", "b", "a\x00b", "😀"], [None, 0, 1, 2]

    def operation(first: bool) -> tuple[str, Any, Any]:
        name = draw.choice(["t", "t", "r", "m", "e"] if not first else ["t", "t", "r", "r", "m", "m", "e"])
        gone = not first and draw.random() < 0.35
        if name == "t":
            value = None if draw.random() < 0.2 else decimal(draw.randint(-300, 300))
            return "t", draw.randint(0, 5), None if gone else (draw.choice(groups), draw.choice(texts), value)
        if name == "r":
            return "r", draw.randint(0, 5), None if gone else (draw.choice(groups), draw.choice([None, *range(10)]))
        row = (draw.choice(groups), draw.choice(texts[:4]))
        return (name, draw.random() < 0.5, row) if name == "m" else (name, None, row)

    return [[operation(epoch == 0) for _ in range(operations * (2 if epoch == 0 else 1))] for epoch in range(epochs)]


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
