"""Strict mode: at every operator whose output has a key, insertions and deletions of each value of the key alternate.

A value that is there cannot be inserted, and one that is not there cannot be deleted; nor can another row of it than the one
that is there. Equal rows of a change set are summed first: an operator may give a row and take it back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from relstate_dagster.jobs.operators.contracts import _as_text, _summed
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.plan.nodes import PlanNode


class Alternation:
    """The rows that every keyed node of a plan has given so far, by their keys."""

    def __init__(self) -> None:
        self._held: dict[PlanNode, dict[str, str]] = defaultdict(dict)

    @property
    def checked(self) -> set[str]:
        """The kinds of nodes that had changes."""
        return {type(node).__name__ for node in self._held}

    def check(self, changes: Mapping[PlanNode, RowSet | None], epoch: int) -> None:
        """Look at the change sets of an epoch; one job for all of them."""
        given = [(node, rows.frame) for node, rows in changes.items() if rows is not None and node.stream_key is not None]
        if not given:
            return
        by_node: dict[int, list[tuple[str, str, int]]] = defaultdict(list)
        texts = _summed(_as_text(n, node, frame) for n, (node, frame) in enumerate(given))
        for number, key, row, weight in texts.select("n", "key", "row", "w").where("w <> 0").collect():
            by_node[number].append((key, row, weight))
        for number, rows in by_node.items():
            self._alternate(given[number][0], rows, epoch)

    def _alternate(self, node: PlanNode, rows: list[tuple[str, str, int]], epoch: int) -> None:
        held = self._held[node]
        place = f"epoch {epoch}: {type(node).__name__} with stream key {node.stream_key}"
        # What goes, goes first.
        for key, row, weight in sorted(rows, key=lambda r: r[2]):
            assert abs(weight) == 1, f"{place}: {row} has weight {weight}"
            if weight < 0:
                assert held.pop(key, None) == row, f"{place}: {row} is deleted, and is not there"
            else:
                assert key not in held, f"{place}: {row} is inserted, and its key is there: {held.get(key)}"
                held[key] = row
