"""Tests of views in YAML files: given rows, changes in steps, expected rows.

Values stay the texts that they are in the file: Spark casts them to the types of the columns.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from relstate_dagster.jobs.declare.project import Project
from relstate_dagster.jobs.declare.statements import place
from relstate_dagster.state_lib.errors import DeclarationError

#: A value as it is written: a text, NULL, or a list or mapping of such.
Written: TypeAlias = "str | list[Written] | dict[str, Written] | None"
Row: TypeAlias = Mapping[str, Written]

#: How the names of the files end.
SUFFIXES: Final = (".test.yaml", ".test.yml")
_CHANGES: Final = ("insert", "update", "delete")
_NULL: Final = "tag:yaml.org,2002:null"


@dataclass(frozen=True)
class Change:
    """Rows inserted into, updated in, or deleted from a table.

    ``kind`` is one of the three.
    """

    kind: str
    table: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Step:
    """Changes that one epoch reads, and the rows that the view then has.

    Attributes
    ----------
    expect
        None where any rows are right that the query gives.
    now
        The instant of the epoch; None for the time it is.
    """

    changes: tuple[Change, ...] = ()
    expect: tuple[Row, ...] | None = None
    now: datetime | None = None


@dataclass(frozen=True)
class ViewTest:
    """One case: a view, and steps of its inputs.

    The first step gives rows.
    """

    view: str
    name: str
    steps: tuple[Step, ...]
    path: str
    line: int

    @property
    def where(self) -> str:
        """File and line, for messages."""
        return place(self.path, self.line)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables whose rows are given or changed."""
        return tuple(dict.fromkeys(change.table for step in self.steps for change in step.changes))


@dataclass
class _Reader:
    """Reader of one file's nodes.

    Whatever it cannot read is an error with its line.
    """

    path: Path
    seen: list[str] = field(default_factory=list)

    def error(self, node: Any, message: str) -> DeclarationError:
        return DeclarationError(f"{place(str(self.path), node.start_mark.line + 1)}: {message}")

    def mapping(self, node: Any, what: str, known: Collection[str] = ()) -> dict[str, Any]:
        if not isinstance(node, yaml.MappingNode):
            of = f" of {', '.join(known)}" if known else ""
            raise self.error(node, f"{what} is a mapping{of}.")
        found: dict[str, Any] = {}
        for key, value in node.value:
            name = str(key.value)
            if known and name not in known:
                raise self.error(key, f"{what} has no {name!r}; there are {', '.join(known)}.")
            if name in found:
                raise self.error(key, f"{what}: {name!r} stands twice.")
            found[name] = value
        return found

    def sequence(self, node: Any, what: str) -> list[Any]:
        if not isinstance(node, yaml.SequenceNode):
            raise self.error(node, f"{what} is a list.")
        return list(node.value)

    def text(self, node: Any, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag == _NULL:
            raise self.error(node, f"{what} is a text.")
        return str(node.value)

    def value(self, node: Any) -> Written:
        if isinstance(node, yaml.ScalarNode):
            return None if node.tag == _NULL else str(node.value)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(part) for part in node.value]
        return {name: self.value(part) for name, part in self.mapping(node, "a value").items()}

    def rows(self, node: Any, what: str) -> tuple[Row, ...]:
        """Read rows: mappings, lines of CSV, or the name of a CSV file."""
        if isinstance(node, yaml.ScalarNode) and node.tag != _NULL:
            return tuple(self._csv(node, what))
        rows = (self.mapping(row, f"a row of {what}") for row in self.sequence(node, what))
        return tuple({name: self.value(part) for name, part in row.items()} for row in rows)

    def _csv(self, node: Any, what: str) -> Iterator[Row]:
        text = str(node.value)
        if "\n" not in text:
            file = self.path.parent / text
            if not file.is_file():
                raise self.error(
                    node, f"{what}: there is no file {file}; rows are a list, lines of CSV, or the name of a file."
                )
            text = file.read_text(encoding="utf-8")
        header, *lines = [line for line in csv.reader(io.StringIO(text), skipinitialspace=True) if line] or [[]]
        for line in lines:
            if len(line) != len(header):
                raise self.error(
                    node, f"{what}: the line {','.join(line)!r} has not as many values as the first one has names."
                )
            # CSV has no NULL: an empty cell is one.
            yield {name.strip(): cell or None for name, cell in zip(header, line, strict=True)}

    def instant(self, node: Any) -> datetime:
        text = self.text(node, "now")
        try:
            found = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            raise self.error(node, f"now: {text!r} is no instant; write 2024-05-01 12:00:00, in UTC or with +02:00.") from None
        return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def load_view_tests(folder: str | Path, project: Project) -> list[ViewTest]:
    """Read every ``*.test.yaml`` below a folder, in order of their paths.

    Raises
    ------
    DeclarationError
        A file is no YAML, says something that no test has, or is of a view that the project does not declare; with the line.
    """
    files = sorted(path for path in Path(folder).rglob("*") if path.name.endswith(SUFFIXES) and path.is_file())
    return [_of_project(test, project) for path in files for test in read_view_tests(path)]


def _of_project(test: ViewTest, project: Project) -> ViewTest:
    try:
        return replace(test, view=project.view(test.view).name)
    except DeclarationError as problem:
        raise DeclarationError(f"{test.where}: {problem}") from problem


def read_view_tests(path: Path) -> list[ViewTest]:
    """Read one file; see :func:`load_view_tests`."""
    reader = _Reader(path)
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise DeclarationError(f"{path}: it is no YAML: {' '.join(str(problem).split())}") from problem
    if root is None:
        return []
    found = reader.mapping(root, "a file of tests", ("view", "tests"))
    own = path.name[: -len(next(suffix for suffix in SUFFIXES if path.name.endswith(suffix)))]
    view = reader.text(found["view"], "view") if "view" in found else own
    if "tests" not in found:
        raise reader.error(root, "a file of tests has a list of tests.")
    return [_test(reader, node, view) for node in reader.sequence(found["tests"], "tests")]


def _test(reader: _Reader, node: Any, view: str) -> ViewTest:
    found = reader.mapping(node, "a test", ("name", "given", "expect", "now", "steps"))
    if "name" not in found:
        raise reader.error(node, "a test has a name.")
    name = reader.text(found["name"], "name")
    if name in reader.seen:
        raise reader.error(node, f"there is a test {name!r} already in this file.")
    reader.seen.append(name)
    given = reader.mapping(found["given"], "given") if "given" in found else {}
    first = tuple(Change("insert", table, reader.rows(rows, f"given, {table}")) for table, rows in given.items())
    steps = [_outcome(reader, found, first)]
    for part in reader.sequence(found["steps"], "steps") if "steps" in found else []:
        of_step = reader.mapping(part, "a step", (*_CHANGES, "expect", "now"))
        changes = tuple(
            Change(kind, table, reader.rows(rows, f"{kind}, {table}"))
            for kind, tables in of_step.items()
            if kind in _CHANGES
            for table, rows in reader.mapping(tables, kind).items()
        )
        steps.append(_outcome(reader, of_step, changes))
    if all(step.expect is None for step in steps):
        raise reader.error(node, f"test {name!r} expects nothing: write expect, with a list of rows.")
    return ViewTest(view, name, tuple(steps), str(reader.path), node.start_mark.line + 1)


def _outcome(reader: _Reader, found: Mapping[str, Any], changes: tuple[Change, ...]) -> Step:
    expect = reader.rows(found["expect"], "expect") if "expect" in found else None
    for row in expect or ():
        if expect and row.keys() != expect[0].keys():
            raise reader.error(
                found["expect"], "the rows of expect name the same columns each; a column that is not compared stands in none."
            )
    return Step(changes, expect, reader.instant(found["now"]) if "now" in found else None)
