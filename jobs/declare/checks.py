"""Checks that a view declares: properties ``check.<name>.<kind>``, read without Spark.

A constraint in the column list, ``CONSTRAINT c EXPECT (condition)``, is the property ``check.c.expect``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from relstate_dagster.jobs.declare.durations import duration
from relstate_dagster.jobs.declare.statements import Cursor, split_statements
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.sql_text import quoted

#: How properties of checks begin.
CHECKS: Final = "check."
#: The checks that every view has.
MATCHES_FULL_RECOMPUTE: Final = "matches_full_recompute"
STREAM_KEY_UNIQUE: Final = "stream_key_unique"

SEVERITY: Final = "severity"
BLOCKING: Final = "blocking"
_SEVERITIES: Final = ("error", "warn")
_BOOLEANS: Final = {"true": True, "false": False}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ROWS: Final = re.compile(r"(\d*)\s*(\.\.)\s*(\d*)|(\d+)", re.ASCII)


@dataclass(frozen=True)
class Check:
    """One check of a view.

    Attributes
    ----------
    kind
        ``unique``, ``not_null``, ``accepted``, ``references``, ``rows``, ``fresh`` or ``expect``.
    text
        The value of its property, as written.
    columns
        Those of the view that it names.
    condition
        What each row has to meet, in Spark SQL: of ``not_null``, ``accepted`` and ``expect``. NULL does not meet it.
    table, table_columns
        Of ``references``: where each combination of ``columns`` has to occur.
    least_rows, most_rows
        Of ``rows``; None where there is no bound.
    age
        Of ``fresh``: how old the newest value may be.
    severity, blocking
        ``error`` or ``warn``; whether what is below the view has to wait until the check passes.
    """

    name: str
    kind: str
    text: str
    columns: tuple[str, ...] = ()
    condition: str = ""
    table: str = ""
    table_columns: tuple[str, ...] = ()
    least_rows: int | None = None
    most_rows: int | None = None
    age: timedelta | None = None
    severity: str = "error"
    blocking: bool = False

    @property
    def described(self) -> str:
        """The kind and what was written, as one text."""
        return f"{self.kind}: {' '.join(self.text.split())}"


def checks_of(properties: Mapping[str, str], where: str) -> tuple[Check, ...]:
    """Read the checks among the properties of a view, in their order.

    Parameters
    ----------
    where
        Names the view, for messages.

    Raises
    ------
    DeclarationError
        A check has no name, no kind or two, an unknown one, or a value that is not understood.
    """
    found: dict[str, Check] = {}
    options: dict[str, dict[str, str]] = {}
    for key, text in properties.items():
        if not key.startswith(CHECKS):
            continue
        name, kind = _name_and_kind(key, where)
        if kind in (SEVERITY, BLOCKING):
            options.setdefault(name, {})[kind] = text
            continue
        clash = next((other for other in found if other.lower() == name.lower()), None)
        if clash is not None:
            raise DeclarationError(
                f"{where}: property {key!r}: there is a check {clash} already ({found[clash].kind}); give this one another name"
            )
        found[name] = _read(name, kind, text, f"{where}: '{key}' = {text!r}")
    for name, given in options.items():
        if name not in found:
            raise DeclarationError(
                f"{where}: '{CHECKS}{name}.{next(iter(given))}' is of a check that is not declared; add one of "
                f"{', '.join(f'{CHECKS}{name}.{kind}' for kind in _KINDS)}."
            )
        found[name] = _with_options(found[name], given, where)
    return tuple(found.values())


def _name_and_kind(key: str, where: str) -> tuple[str, str]:
    name, _, kind = key.removeprefix(CHECKS).partition(".")
    if not _NAME.fullmatch(name):
        raise DeclarationError(
            f"{where}: property {key!r}: {name!r} is no name of a check: write '{CHECKS}<name>.<kind>', with ASCII letters, "
            "digits and underscores."
        )
    if name.lower() in (MATCHES_FULL_RECOMPUTE, STREAM_KEY_UNIQUE):
        raise DeclarationError(f"{where}: property {key!r}: every view has a check {name}; give this one another name.")
    if kind not in (*_KINDS, SEVERITY, BLOCKING):
        raise DeclarationError(
            f"{where}: property {key!r}: there is no kind of check {kind!r}; there are {', '.join(_KINDS)}, "
            f"and the options {SEVERITY} and {BLOCKING}."
        )
    return name, kind


def _read(name: str, kind: str, text: str, where: str) -> Check:
    read, example = _KINDS[kind]
    try:
        return read(Check(name, kind, text))
    except (ValueError, DeclarationError) as problem:
        reason = f": {problem}" if isinstance(problem, ValueError) and str(problem) else " is not understood"
        raise DeclarationError(f"{where}{reason}; write it as {example!r}.") from problem


def _with_options(check: Check, given: Mapping[str, str], where: str) -> Check:
    severity, blocking = given.get(SEVERITY, "error"), given.get(BLOCKING, "false")
    for option, text, known in ((SEVERITY, severity, _SEVERITIES), (BLOCKING, blocking, tuple(_BOOLEANS))):
        if text not in known:
            raise DeclarationError(
                f"{where}: '{CHECKS}{check.name}.{option}' = {text!r} is unknown; it is one of {', '.join(known)}."
            )
    if _BOOLEANS[blocking] and severity == "warn":
        raise DeclarationError(f"{where}: check {check.name} is a warning, which blocks nothing: drop one of the two options.")
    return replace(check, severity=severity, blocking=_BOOLEANS[blocking])


# ---------------------------------------------------------------------------------------------------------- the kinds


def _cursor(text: str) -> Cursor:
    statements = split_statements(text)
    if len(statements) != 1:
        raise ValueError
    return Cursor(statements[0])


def _ended(cursor: Cursor) -> None:
    if not cursor.at_end:
        raise ValueError(f"unexpected {cursor.found()}")


def _listed(text: str) -> tuple[str, ...]:
    cursor = _cursor(text)
    names = [cursor.identifier("columns")]
    while cursor.accept(","):
        names.append(cursor.identifier("columns"))
    _ended(cursor)
    return _once(names)


def _once(names: list[str]) -> tuple[str, ...]:
    if len({name.lower() for name in names}) < len(names):
        raise ValueError("a column stands twice")
    return tuple(names)


def _unique(check: Check) -> Check:
    return replace(check, columns=_listed(check.text))


def _not_null(check: Check) -> Check:
    columns = _listed(check.text)
    return replace(check, columns=columns, condition=" AND ".join(f"{quoted(column)} IS NOT NULL" for column in columns))


def _accepted(check: Check) -> Check:
    cursor = _cursor(check.text)
    column = cursor.identifier("column")
    cursor.expect("IN", "values")
    if cursor.current is None:
        raise ValueError
    values = cursor.statement.script[cursor.current.start : cursor.tokens[-1].end + 1]
    if not cursor.group("values"):
        raise ValueError("no value is accepted")
    _ended(cursor)
    # A NULL among the values would make every other value unknown.
    condition = f"{quoted(column)} IS NULL OR coalesce({quoted(column)} IN {values}, false)"
    return replace(check, columns=(column,), condition=condition)


def _references(check: Check) -> Check:
    cursor = _cursor(check.text)
    columns: tuple[str, ...] = ()
    if cursor.at("("):
        columns = _group(cursor)
        cursor.expect("IN", "table")
        table = cursor.identifier("table")
    else:
        table = cursor.identifier("table")
        if cursor.accept("IN"):
            columns, table = (table,), cursor.identifier("table")
    others = _group(cursor)
    _ended(cursor)
    if columns and len(columns) != len(others):
        raise ValueError(f"{len(columns)} columns are looked up in {len(others)}")
    return replace(check, columns=columns or others, table=table, table_columns=others)


def _group(cursor: Cursor) -> tuple[str, ...]:
    names: list[str] = []
    for part in cursor.group("columns"):
        names.append(part.identifier("columns"))
        _ended(part)
    if not names:
        raise ValueError("no column is named")
    return _once(names)


def _rows(check: Check) -> Check:
    match = _ROWS.fullmatch(check.text.strip())
    if match is None:
        raise ValueError
    least, dots, most, exactly = match.groups()
    if not dots:
        return replace(check, least_rows=int(exactly), most_rows=int(exactly))
    if not least and not most:
        raise ValueError("there is no bound")
    low, high = (int(bound) if bound else None for bound in (least, most))
    if low is not None and high is not None and low > high:
        raise ValueError("the first bound has to be the smaller one")
    return replace(check, least_rows=low, most_rows=high)


def _fresh(check: Check) -> Check:
    cursor = _cursor(check.text)
    column = cursor.identifier("column")
    cursor.expect(",", "age")
    if cursor.at_end:
        raise ValueError
    return replace(check, columns=(column,), age=duration(cursor.rest()))


def _expect(check: Check) -> Check:
    if not split_statements(check.text):
        raise ValueError("there is no condition")
    return replace(check, condition=check.text)


_KINDS: Final[dict[str, tuple[Callable[[Check], Check], str]]] = {
    "unique": (_unique, "a, b"),
    "not_null": (_not_null, "a, b"),
    "accepted": (_accepted, "status IN ('new', 'paid')"),
    "references": (_references, "customer IN customers(id)"),
    "rows": (_rows, "1..1000"),
    "fresh": (_fresh, "ts, 2 hours"),
    "expect": (_expect, "total >= 0"),
}
