"""Tables that a query names, by its tokens, where sqlglot cannot parse it.

Without Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sqlglot import Token, TokenType

from relstate_dagster.jobs.declare.statements import Cursor, split_statements
from relstate_dagster.state_lib.errors import DeclarationError

#: Words after which a comma separates no tables.
_ENDS_TABLES: Final = frozenset(
    {"WHERE", "GROUP BY", "HAVING", "ORDER BY", "SORT BY", "CLUSTER BY", "DISTRIBUTE BY", "LIMIT", "OFFSET", "WINDOW", "UNION",
     "EXCEPT", "INTERSECT", "MINUS", "SELECT", "QUALIFY", "LATERAL VIEW", "PIVOT", "UNPIVOT", "|>"}
)  # fmt: skip
#: Words that may stand before the name of a table.
_BEFORE_NAME: Final = frozenset({"LATERAL", "TABLE", "STREAM"})


@dataclass(slots=True)
class _Block:
    """Contents of a pair of parentheses, or the whole query.

    Parameters
    ----------
    names : the common table expression that the block defines.
    is_query : whether SELECT was read, so that FROM is a clause and not an argument, as in EXTRACT(DAY FROM x).
    """

    names: str = ""
    is_empty: bool = True
    is_query: bool = False
    lists_tables: bool = False
    defines: bool = False


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table's name in a query.

    Attributes
    ----------
    start, end
        The positions of its first and its last letter.
    hidden
        Names of common table expressions that are defined there.
    """

    parts: tuple[str, ...]
    start: int
    end: int
    hidden: frozenset[str]


@dataclass(slots=True)
class _Scan:
    where: str
    found: list[TablePlace] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)
    blocks: list[_Block] = field(default_factory=lambda: [_Block()])
    wants_table: bool = False
    defining: str = ""
    is_recursive: bool = False

    def read(self, cursor: Cursor) -> None:  # noqa: C901 - one branch a kind of word
        """Read the current token and step over it, or over the name that it begins."""
        token = cursor.current
        assert token is not None
        block, word = self.blocks[-1], cursor.peek()
        is_first, block.is_empty = block.is_empty, False
        previous = cursor.index
        if word == "(":
            self.blocks.append(_Block(self.defining))
            self.wants_table, self.defining = False, ""
        elif word == ")" and len(self.blocks) > 1:
            self.defined.add(self.blocks.pop().names)
            self.wants_table = False
        elif word == "WITH":
            block.defines = True
        elif block.defines and word not in ("SELECT", "FROM", "VALUES", "TABLE"):
            self._define(cursor, token, word)
        elif word == "FROM" and (is_first or block.is_query) and not _is_distinct_from(cursor):
            block.is_query = block.lists_tables = self.wants_table = True
        elif word == "JOIN" or (word == "," and block.lists_tables) or (word == "TABLE" and is_first):
            self.wants_table = True
        elif word == "LATERAL" and cursor.peek(1) == "VIEW":
            block.lists_tables = self.wants_table = False
        elif word in _ENDS_TABLES:
            block.lists_tables = self.wants_table = False
            block.is_query = block.is_query or word == "SELECT"
        elif self.wants_table and word not in _BEFORE_NAME:
            self._table(cursor, token)
        if word in ("SELECT", "FROM", "VALUES", "TABLE"):
            block.defines = False
        if cursor.index == previous:
            cursor.index += 1

    def _define(self, cursor: Cursor, token: Token, word: str) -> None:
        if word in ("AS", ",", "RECURSIVE"):
            self.is_recursive = self.is_recursive or word == "RECURSIVE"
            return
        self.defining = token.text.lower()
        if cursor.peek(1) == "(":
            # The columns of the common table expression.
            cursor.index += 1
            cursor.group(self.where)

    def _table(self, cursor: Cursor, token: Token) -> None:
        self.wants_table = False
        if not _is_name(token) or cursor.peek(1) == "(":
            return
        parts, last = [token.text], token
        while cursor.peek(1) == "." and cursor.index + 2 < len(cursor.tokens):
            cursor.index += 2
            last = cursor.tokens[cursor.index]
            parts.append(last.text)
        # A recursive expression is defined within itself.
        within = {block.names for block in self.blocks} if self.is_recursive else set()
        self.found.append(TablePlace(tuple(parts), token.start, last.end, frozenset(self.defined | within)))


def table_places(query: str, where: str) -> list[TablePlace]:
    """Names of tables after FROM and JOIN, with their places."""
    scan = _Scan(where)
    for statement in split_statements(query):
        cursor = Cursor(statement)
        while not cursor.at_end:
            scan.read(cursor)
    return scan.found


def tables_by_tokens(query: str, where: str) -> tuple[str, ...]:
    """Names of tables after FROM and JOIN that no earlier WITH defines.

    Raises
    ------
    DeclarationError
        A table is read by path or by a name in several parts.
    """
    names: dict[str, str] = {}
    for place in table_places(query, where):
        if len(place.parts) > 1:
            raise in_parts(query[place.start : place.end + 1], where)
        name = place.parts[0]
        if name.lower() not in place.hidden:
            names.setdefault(name.lower(), name)
    return tuple(names.values())


def in_parts(table: str, where: str) -> DeclarationError:
    """The error for a table that is not named by one plain name."""
    return DeclarationError(
        f"{where}: {table} is read by path or by a name in several parts: declare it as a source (CREATE TABLE name … "
        "LOCATION '…') and read it by that name."
    )


def _is_name(token: Token) -> bool:
    if token.token_type in (TokenType.STRING, TokenType.RAW_STRING, TokenType.NUMBER):
        return False
    return token.token_type is TokenType.IDENTIFIER or token.text[:1].isalpha() or token.text[:1] == "_"


def _is_distinct_from(cursor: Cursor) -> bool:
    return cursor.peek(-1) == "DISTINCT" and cursor.peek(-2) in ("IS", "NOT", "IS NOT")
