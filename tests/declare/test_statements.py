"""Splitting a script: only a `;` outside of strings, quoted names and comments ends a statement."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relstate_dagster.jobs.declare import split_statements
from relstate_dagster.state_lib.errors import DeclarationError


def texts(script):
    return [statement.text for statement in split_statements(script)]


def test_text_is_kept_as_written_without_outer_comments():
    script = "-- first; really\n  SELECT 'a;b',\n  `c;d` /* ; */ FROM t -- last;\n;\n;; /* nested /* ; */ */ DROP\tTABLE x;"
    assert texts(script) == ["SELECT 'a;b',\n  `c;d` /* ; */ FROM t", "DROP\tTABLE x"]


def test_lines_count_from_the_first_word():
    script = "\n-- c\nSELECT\n'x\ny';\n\n  SELECT 2; SELECT 3"
    assert [statement.line for statement in split_statements(script)] == [3, 7, 7]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'it''s; fine'",
        r"SELECT 'a\'; b'",
        'SELECT "x;y"',
        r"SELECT r'\;' , X'00', 1L, 1.5BD, 'Ж; 😀'",
        "EXPLAIN SELECT ';'",
        "SHOW TBLPROPERTIES t ('a;b')",
        "OPTIMIZE t WHERE a = ';'",
        "SELECT /*+ BROADCAST(t) */ * FROM t",
    ],
)
def test_one_statement(text):
    assert texts(f"{text}; {text}") == [text, text]


@pytest.mark.parametrize("text", ["SELECT 'a", "SELECT `a", "SELECT /* a"])
def test_unclosed_quotes_and_comments_are_refused(text):
    with pytest.raises(DeclarationError, match="not be closed"):
        split_statements(text, "f.sql")


@given(st.lists(st.text(alphabet="ab;'\"\\-/* \n", max_size=8), max_size=5))
def test_string_literals_survive_splitting(literals):
    quoted = ["SELECT '" + text.replace("\\", "\\\\").replace("'", "\\'") + "'" for text in literals]
    assert texts(";\n".join(quoted)) == quoted
