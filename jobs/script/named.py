"""The sources and views that a statement of any kind may name, found by its words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from jobs.catalog.state import CatalogState

_WORD: Final = re.compile(r"\w+", re.ASCII)
#: Statements that list what there is, without naming it.
_LISTING: Final = frozenset({"show"})


def named_in(state: CatalogState, statement: str, kept: Iterable[str] = ()) -> list[str]:
    """Sources and views that a statement may name, each after the plain views' own; at least those that it does name.

    A warehouse may have ten thousand views: making all of them known to Spark takes minutes.

    Parameters
    ----------
    kept : names that count as named, whatever the statement says.
    """
    there = {name.lower(): name for name in (*state.sources, *state.views, *state.plain_views)}
    first = _WORD.search(statement)
    lists = first is not None and first.group().lower() in _LISTING
    wanted = sorted(there) if lists else [*(name.lower() for name in kept), *_words(statement)]
    found: dict[str, None] = {}
    under_way: set[str] = set()

    def visit(word: str) -> None:
        name = there.get(word)
        if name is None or name in found or name in under_way:
            return
        under_way.add(name)
        if name in state.plain_views:
            for inner in _words(state.plain_views[name].query):
                visit(inner)
        found[name] = None

    for word in wanted:
        visit(word)
    return list(found)


def _words(text: str) -> Iterator[str]:
    return (match.group().lower() for match in _WORD.finditer(text))
