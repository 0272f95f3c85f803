"""Sources and views that a statement may name, found by its words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from relstate_dagster.jobs.catalog.state import CatalogState

_WORD: Final = re.compile(r"\w+", re.ASCII)
#: Words of statements that may mean any name: they list what there is, or put names together as they run.
_ANY: Final = frozenset({"show", "identifier", "execute"})


def named_in(state: CatalogState, statement: str, kept: Iterable[str] = ()) -> list[str]:
    """At least the sources and views that a statement names.

    Plain views come after what they read.

    A warehouse may have ten thousand views: making all of them known to Spark takes minutes.

    Parameters
    ----------
    kept : names that count as named, whatever the statement says.
    """
    there = {name.lower(): name for name in (*state.sources, *state.views, *state.plain_views)}
    words = list(_words(statement))
    wanted = sorted(there) if _ANY & set(words) else [*(name.lower() for name in kept), *words]
    found: dict[str, None] = {}
    under_way: set[str] = set()

    def visit(word: str) -> None:
        name = there.get(word)
        if name is None or name in found or name in under_way:
            return
        under_way.add(name)
        if name in state.plain_views:
            query = state.plain_views[name].query
            for inner in _words(query) if isinstance(query, str) else query.reads or ():
                visit(inner.lower())
        found[name] = None

    for word in wanted:
        visit(word)
    return list(found)


def _words(text: str) -> Iterator[str]:
    return (match.group().lower() for match in _WORD.finditer(text))
