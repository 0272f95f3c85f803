"""Splitting a script into statements, and walking the tokens of one.

sqlglot's Spark tokenizer finds where strings, quoted names and comments begin and end. The positions of its tokens cut the
original text, so Spark gets exactly what the person wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from relstate_dagster.state_lib.errors import DeclarationError


class _Tokenizer(Spark.Tokenizer):
    # For EXPLAIN, SHOW and the like sqlglot swallows everything up to the next `;`, even one in quotes.
    COMMANDS = set()  # noqa: RUF012 - sqlglot's way to configure a tokenizer


@dataclass(frozen=True)
class Statement:
    """One statement of a script.

    Attributes
    ----------
    text
        As written, without the closing ``;`` and without comments before its first or after its last word.
    line
        Line of its first word in the script, from 1.
    tokens
        Its tokens; their ``start`` and ``end`` are positions in `script`.
    """

    text: str
    line: int
    path: str | None = None
    tokens: tuple[Token, ...] = field(default=(), repr=False, compare=False)
    script: str = field(default="", repr=False, compare=False)

    @property
    def where(self) -> str:
        """File and line, for messages."""
        return place(self.path, self.line)


def place(path: str | None, line: int) -> str:
    """Return ``file:line`` as messages begin with."""
    return f"{path or 'statement'}:{line}"


def split_statements(text: str, path: str | None = None) -> list[Statement]:
    """Cut a script at the ``;`` that stand outside of strings, quoted names and comments.

    Raises
    ------
    DeclarationError
        A string, a quoted name or a comment is not closed.
    """
    try:
        tokens = _Tokenizer(dialect=Spark()).tokenize(text)
    except TokenError as problem:
        raise DeclarationError(f"{place(path, 1)}: a quote or comment may not be closed: {problem}") from problem
    statements: list[Statement] = []
    current: list[Token] = []
    for token in [*tokens, None]:
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            current.append(token)
        elif current:
            statements.append(_statement(text, tuple(current), path))
            current = []
    return statements


def normalized_sql(text: str) -> str:
    """SQL text without comments and superfluous white space.

    None is left beside ``( ) ,``.

    Two texts of one normal form are the same query. Case stays: it shows in the names of columns.
    """
    joined, end, before = "", 0, ""
    for token in _Tokenizer(dialect=Spark()).tokenize(text):
        if token.start < end:
            continue  # of a number with a suffix, 1.5BD, the suffix is a token that lies in it
        word = text[token.start : token.end + 1]
        if token.token_type not in _LITERALS | {TokenType.IDENTIFIER}:
            word = " ".join(word.split())  # GROUP BY is one token
        has_gap = token.start > end and not {word, before} & {"(", ")", ","}
        joined += f" {word}" if has_gap and joined else word
        end, before = token.end + 1, word
    return joined


def _statement(script: str, tokens: tuple[Token, ...], path: str | None) -> Statement:
    start = tokens[0].start
    line = script.count("\n", 0, start) + 1
    return Statement(script[start : tokens[-1].end + 1], line, path, tokens, script)


class Cursor:
    """A position in a statement's tokens, for a recursive-descent parser."""

    def __init__(self, statement: Statement, tokens: Sequence[Token] | None = None) -> None:
        self.statement = statement
        self.tokens = statement.tokens if tokens is None else tokens
        self.index = 0

    @property
    def current(self) -> Token | None:
        """The token to be read next; None at the end."""
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    @property
    def at_end(self) -> bool:
        """Whether every token was read."""
        return self.current is None

    @property
    def where(self) -> str:
        """File and line of the current token."""
        token = self.current or self.tokens[-1]
        return place(self.statement.path, self.statement.script.count("\n", 0, token.start) + 1)

    def error(self, message: str) -> DeclarationError:
        """Return an error that says where the cursor is."""
        return DeclarationError(f"{self.where}: {message}")

    def peek(self, ahead: int = 0) -> str:
        """A token's word in upper case.

        Empty for a string literal and past the end.
        """
        position = self.index + ahead
        if position >= len(self.tokens):
            return ""
        token = self.tokens[position]
        if token.token_type in _LITERALS:
            return ""
        # sqlglot reads some pairs of words as one token, however much white space is between them.
        return " ".join(self.source(token).upper().split())

    def at(self, *words: str) -> bool:
        """Whether the next words are these.

        A word may hold two, where sqlglot reads them as one token.
        """
        wanted = " ".join(words).split()
        found: list[str] = []
        ahead = 0
        while len(found) < len(wanted) and (word := self.peek(ahead)):
            found += word.split()
            ahead += 1
        return found == wanted

    def accept(self, *words: str) -> bool:
        """Step over these words if they come next."""
        if not self.at(*words):
            return False
        left = len(" ".join(words).split())
        while left:
            left -= len(self.peek().split())
            self.index += 1
        return True

    def expect(self, word: str, context: str) -> None:
        """Step over a word that has to come next."""
        if not self.accept(word):
            raise self.error(f"{context}: expected {word}, found {self.found()}.")

    def found(self) -> str:
        """Return the current token as a message shows it."""
        return repr(self.source(self.current)) if self.current else "the end of the statement"

    def source(self, token: Token) -> str:
        """Text of a token in the script."""
        return self.statement.script[token.start : token.end + 1]

    def identifier(self, context: str) -> str:
        """Step over a name, plain or in backticks, and return it."""
        token = self.current
        if token is None or not (token.token_type is TokenType.IDENTIFIER or token.text[:1].isalpha() or token.text[:1] == "_"):
            raise self.error(f"{context}: expected a name, found {self.found()}.")
        if token.token_type in _LITERALS:
            raise self.error(f"{context}: expected a name, found the string {self.found()}.")
        self.index += 1
        return token.text

    def string(self, context: str) -> str:
        """Step over a string literal, or several in a row, and return its text."""
        token = self.current
        if token is None or token.token_type not in _LITERALS:
            raise self.error(f"{context}: expected a string in quotes, found {self.found()}.")
        text = token.text
        self.index += 1
        while (following := self.current) is not None and following.token_type in _LITERALS:
            # 'it''s' is a quote in a string (as in Spark 4), 'a' 'b' is one string in two parts.
            text += ("'" if following.start == token.end + 1 else "") + following.text
            token = following
            self.index += 1
        return text

    def rest(self) -> str:
        """Return the text from the current token on, and step to the end."""
        assert self.current is not None
        text = self.statement.script[self.current.start : self.tokens[-1].end + 1]
        self.index = len(self.tokens)
        return text

    def group(self, context: str) -> list[Cursor]:
        """Step over ``( … )`` and return a cursor for each part between commas."""
        self.expect("(", context)
        parts: list[list[Token]] = [[]]
        round_depth, angle_depth, before = 1, 0, ""
        while (token := self.current) is not None:
            word = self.peek()
            self.index += 1
            if word == "(":
                round_depth += 1
            elif word == ")":
                round_depth -= 1
                if round_depth == 0:
                    return [Cursor(self.statement, part) for part in parts if part]
            elif word == "<" and (angle_depth or before in ("ARRAY", "MAP", "STRUCT")):
                angle_depth += 1
            elif angle_depth and word and set(word) == {">"}:
                angle_depth -= len(word)
            if word == "," and round_depth == 1 and angle_depth == 0:
                parts.append([])
            else:
                parts[-1].append(token)
            before = word
        raise self.error(f"{context}: a parenthesis is not closed.")


_LITERALS = frozenset({TokenType.STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING, TokenType.HEREDOC_STRING})
