"""Clauses of a CREATE statement, in any order: USING, COMMENT, LOCATION, TBLPROPERTIES and others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from relstate_dagster.jobs.declare.model import FILE_FORMATS
from relstate_dagster.jobs.declare.source_columns import refuse_duplicates
from relstate_dagster.jobs.declare.statements import Cursor


@dataclass
class Clauses:
    """Clauses of a statement."""

    comment: str | None = None
    location: str | None = None
    cluster_by: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    file_format: str | None = None
    is_iceberg: bool = False
    options: dict[str, str] = field(default_factory=dict)
    takes_files: bool = False


def read_clauses(cursor: Cursor, context: str, refused: dict[str, str], until: str, *, takes_files: bool = False) -> Clauses:
    """Read clauses in any order, each once.

    Up to the word `until` or the end of the statement.
    """
    found = Clauses(takes_files=takes_files)
    seen: set[str] = set()
    allowed = [words for words in _CLAUSES if takes_files or words != "OPTIONS"]
    while not cursor.at_end and not (until and cursor.at(until)):
        clause = next((words for words in allowed if cursor.at(words)), None)
        if clause is None:
            name = next((words for words in refused if cursor.at(words)), None)
            if name is not None:
                raise cursor.error(f"{context}: the clause {name} is not taken: {refused[name]}.")
            raise cursor.error(
                f"{context}: {cursor.found()} is not taken here; the clauses are {', '.join(sorted(allowed))}"
                + (f", then {until} and a query." if until else ".")
            )
        if clause in seen:
            raise cursor.error(f"{context}: the clause {clause} stands twice.")
        seen.add(clause)
        cursor.accept(clause)
        _CLAUSES[clause](cursor, f"{context}, {clause}", found)
    return found


def _using(cursor: Cursor, context: str, found: Clauses) -> None:
    if cursor.accept("DELTA"):
        return
    formats = ("iceberg", *FILE_FORMATS) if found.takes_files else ()
    named = next((name for name in formats if cursor.accept(name.upper())), None)
    found.is_iceberg = named == "iceberg"
    found.file_format = None if found.is_iceberg else named
    if named is None:
        raise cursor.error(f"{context}: only {', '.join(('delta', *formats))} is taken, found {cursor.found()}.")


def _comment(cursor: Cursor, context: str, found: Clauses) -> None:
    found.comment = cursor.string(context)


def _location(cursor: Cursor, context: str, found: Clauses) -> None:
    found.location = cursor.string(context)


def _cluster_by(cursor: Cursor, context: str, found: Clauses) -> None:
    found.cluster_by = _column_names(cursor, context)


def _partitioned_by(cursor: Cursor, context: str, found: Clauses) -> None:
    found.partitioned_by = _column_names(cursor, context)


def _tblproperties(cursor: Cursor, context: str, found: Clauses) -> None:
    _pairs(cursor, context, "property", found.properties)


def _options(cursor: Cursor, context: str, found: Clauses) -> None:
    _pairs(cursor, context, "option", found.options)


def _pairs(cursor: Cursor, context: str, what: str, found: dict[str, str]) -> None:
    for part in cursor.group(context):
        key = part.string(context) if not part.peek() else _dotted(part, context)
        part.accept("=")
        if part.at_end:
            raise part.error(f"{context}: {what} {key!r} has no value.")
        text = part.rest() if part.peek() else part.string(context)
        if key in found:
            raise cursor.error(f"{context}: {what} {key!r} stands twice.")
        found[key] = text


_CLAUSES: Final[dict[str, Callable[[Cursor, str, Clauses], None]]] = {
    "USING": _using,
    "COMMENT": _comment,
    "LOCATION": _location,
    "CLUSTER BY": _cluster_by,
    "PARTITIONED BY": _partitioned_by,
    "TBLPROPERTIES": _tblproperties,
    "OPTIONS": _options,
}


def _dotted(part: Cursor, context: str) -> str:
    words = [part.identifier(context)]
    while part.accept("."):
        words.append(part.identifier(context))
    return ".".join(words)


def _column_names(cursor: Cursor, context: str) -> tuple[str, ...]:
    names = [part.identifier(context) for part in cursor.group(context)]
    refuse_duplicates(names, cursor, context)
    return tuple(names)
