"""Tables that functions of views read, kept in the warehouse from their last plans.

Definitions of Dagster load without a JVM, and a function whose text does not show its tables has to be called to know them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from relstate_dagster.jobs.declare.model import PlainView, SourceDeclaration, ViewDeclaration
from relstate_dagster.jobs.declare.query_function import Query, QueryFunction
from relstate_dagster.state_lib.errors import RelstateError
from relstate_dagster.state_lib.lake.files import read_file, write_file

Declared: TypeAlias = ViewDeclaration | SourceDeclaration | PlainView


def with_last_reads(declared: Iterable[Declared], warehouse: str | None) -> list[Declared]:
    """Declarations, with reads from the last plan for functions whose text does not tell."""
    found = list(declared)
    unknown = {d.name for d in found if not isinstance(d, SourceDeclaration) and _is_unread(d.query)}
    known = last_reads(warehouse) if unknown and warehouse is not None else {}
    return [_with_reads(d, known[d.name]) if d.name in unknown and d.name in known else d for d in found]


def _is_unread(query: Query) -> bool:
    return isinstance(query, QueryFunction) and query.reads is None


def _with_reads(declared: Declared, reads: tuple[str, ...]) -> Declared:
    if isinstance(declared, SourceDeclaration) or isinstance(declared.query, str):
        return declared
    return replace(declared, query=replace(declared.query, reads=reads))


def last_reads(warehouse: str) -> Mapping[str, tuple[str, ...]]:
    """Reads of views by name; empty before the first plan."""
    try:
        kept = json.loads(read_file(_file(warehouse)))
    except (OSError, ValueError, RelstateError):
        return {}
    return {name: tuple(reads) for name, reads in kept.items()}


def keep_reads(warehouse: str, reads: Mapping[str, Iterable[str]]) -> None:
    """Keep reads of views, beside those of others."""
    before = last_reads(warehouse)
    after = {**before, **{name: tuple(of_view) for name, of_view in reads.items()}}
    if after != before:
        write_file(_file(warehouse), json.dumps(after, sort_keys=True).encode())


def _file(warehouse: str) -> str:
    return f"{warehouse}/_relstate/reads.json"
