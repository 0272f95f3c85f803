"""Tables of Spark's catalog, read by their names there.

``FROM sales.orders`` reads a source that is found by that name. It may be declared, with a name of its own and a key:

    CREATE TABLE orders (PRIMARY KEY (id)) TBLPROPERTIES ('source.table' = 'sales.orders')

Otherwise it is a source ``sales__orders`` without a key. Its place is looked up by each run that has a session; plans and
sensors know the place that was found last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from relstate_dagster.jobs.declare.model import SourceDeclaration
from relstate_dagster.jobs.declare.statements import Cursor, split_statements
from relstate_dagster.jobs.declare.table_tokens import TablePlace, in_parts, table_places
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.sql_text import quoted

#: The property of a source that is found by its name in Spark's catalog.
TABLE: Final = "source.table"
#: Spark's own catalog, which may be left out of names.
_SPARK_CATALOG: Final = "spark_catalog"
#: What stands before a path, or before a view of the session, and is no database.
_NO_DATABASE: Final = frozenset(
    {"avro", "binaryfile", "csv", "delta", "global_temp", "iceberg", "json", "orc", "parquet", "text", "xml"}
)
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.\s]+)")
#: Where the name of a table is taken by another one in a query, the name that it is read by.
_OTHER_NAME: Final = "__table__"

#: Parts of a name in Spark's catalog, in lower case and without Spark's own catalog.
Parts = tuple[str, ...]


def table_parts(name: str, where: str, key: str = TABLE) -> Parts:
    """The parts of a table's name in Spark's catalog.

    Raises
    ------
    DeclarationError
        It is no name of one to three parts.
    """
    found, position = [], 0
    while position < len(name):
        part = _PART.match(name, position)
        if part is None:
            break
        found.append(part[1].replace("``", "`") if part[1] else part[2])
        position = part.end() + 1
        if part.end() < len(name) and name[part.end()] != ".":
            break
    if position != len(name) + 1 or not 1 <= len(found) <= 3:
        raise DeclarationError(
            f"{where}: '{key}' = {name!r} is no name of a table: write database.table, or catalog.database.table."
        )
    return _plain(found)


def with_catalog_table(source: SourceDeclaration, where: str) -> SourceDeclaration:
    """A declared source with its table in Spark's catalog, in one spelling.

    Raises
    ------
    DeclarationError
        It is no such name, or the declaration says where its rows are as well.
    """
    name = source.properties.get(TABLE)
    if name is None or source.is_iceberg:  # that is in a catalog of PyIceberg
        return source
    parts = table_parts(name, where)
    if source.location is not None or source.file_format is not None:
        raise DeclarationError(f"{where}: '{TABLE}' says where its rows are: leave LOCATION and the format of files out.")
    return replace(source, table=table_text(parts))


def source_of(parts: Parts) -> SourceDeclaration:
    """The source for a table that is not declared."""
    return SourceDeclaration("__".join(re.sub(r"\W", "_", part) for part in parts), table=table_text(parts))


def table_text(parts: Sequence[str]) -> str:
    """The name of a table as SQL writes it."""
    return ".".join(map(quoted, _plain(parts)))


@dataclass
class CatalogTables:
    """Sources of a project that are tables of Spark's catalog, declared or only read.

    Attributes
    ----------
    names
        The source of each table.
    found
        Sources for tables that are read and not declared.
    """

    names: dict[Parts, str] = field(default_factory=dict)
    found: dict[str, SourceDeclaration] = field(default_factory=dict)

    def add(self, name: str, table: str, where: str) -> None:
        """Add a declared source.

        Raises
        ------
        DeclarationError
            Another one is the same table.
        """
        parts = table_parts(table, where)
        other = self.names.setdefault(parts, name)
        if other != name:
            raise DeclarationError(f"{where}: {table} is declared as {other} already: read it by that name.")

    def over_sources(self, query: str, where: str) -> str:
        """A query that reads sources in place of tables of Spark's catalog."""
        if "." not in query:
            return query
        places = table_places(query, where)
        others = {place.parts[0].lower() for place in places if len(place.parts) == 1}
        renamed: dict[str, str] = {}
        pieces: list[str] = []
        position = 0
        for place in places:
            if len(place.parts) == 1:
                continue
            if place.parts[0].lower() in _NO_DATABASE or len(place.parts) > 3:
                raise in_parts(query[place.start : place.end + 1], where)
            pieces += [query[position : place.start], quoted(self._read_as(place, others, renamed))]
            position = place.end + 1
        return with_tables("".join([*pieces, query[position:]]), renamed)

    def _read_as(self, place: TablePlace, others: set[str], renamed: dict[str, str]) -> str:
        """The name of a table in a query.

        It is the last part of its own, by which columns are qualified, if nothing else in the query has that name.

        Parameters
        ----------
        others : names of one part that the query reads, in lower case.
        renamed : the source of each name that was given so far; another one may be added.
        """
        parts = _plain(place.parts)
        if parts not in self.names:
            source = source_of(parts)
            self.names[parts] = source.name
            self.found[source.name] = source
        name, last = self.names[parts], place.parts[-1]
        if name.lower() == last.lower() and last.lower() not in place.hidden:
            return name
        is_free = last.lower() not in others | place.hidden and renamed.get(last, name) == name
        alias = last if is_free else f"{_OTHER_NAME}{name}"
        renamed[alias] = name
        return alias


def with_tables(query: str, tables: Mapping[str, str]) -> str:
    """A query with common table expressions that give tables other names.

    Parameters
    ----------
    tables
        The table of each name.
    """
    if not tables:
        return query
    defined = ", ".join(f"{quoted(alias)} AS (SELECT * FROM {quoted(name)})" for alias, name in tables.items())
    cursor = Cursor(split_statements(query)[0])
    if not cursor.accept("WITH"):
        return f"WITH {defined}\n{query}"
    recursive = "RECURSIVE " if cursor.accept("RECURSIVE") else ""
    return f"WITH {recursive}{defined},\n{cursor.rest()}"


def _plain(parts: Sequence[str]) -> Parts:
    lower = tuple(part.lower() for part in parts)
    return lower[1:] if len(lower) > 1 and lower[0] == _SPARK_CATALOG else lower
