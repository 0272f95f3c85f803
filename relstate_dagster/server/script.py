"""A script run by a server.

If it dies, this process runs the rest, where that is safe.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from relstate_dagster.jobs.declare.model import (
    CheckStatement,
    DropStatement,
    ExplainCreateStatement,
    ExplainStatement,
    OtherStatement,
    PlainView,
    RefreshStatement,
    SourceDeclaration,
    VerifyStatement,
    ViewDeclaration,
)
from relstate_dagster.jobs.declare.parser import parse_statement
from relstate_dagster.jobs.declare.statements import split_statements
from relstate_dagster.server.channel import Message, ServerGone
from relstate_dagster.server.client import ServerAt
from relstate_dagster.state_lib.errors import EnvironmentProblem, RelstateError

#: Statements that can be done again without doing anything twice.
_REPEATABLE = (RefreshStatement, VerifyStatement, CheckStatement, ExplainStatement, ExplainCreateStatement)
#: Statements after which another session knows all that the first one did.
_KEPT_IN_THE_WAREHOUSE = (*_REPEATABLE, SourceDeclaration, ViewDeclaration, PlainView, DropStatement)
_CHANGES_ROWS = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "ALTER"})


@dataclass
class ServerScript:
    """A script at a server.

    Parameters
    ----------
    agreed : the settings of this process, which the server compares with its own.
    done : how many statements have ended.
    """

    server: ServerAt
    agreed: dict[str, str]
    text: str
    path: str | None
    done: int = field(default=0, init=False)

    def run(self, *, as_json: bool, keep_going: bool) -> Iterator[Message]:
        """Run the script, and yield the server's messages.

        ``tell``, ``report``, ``done`` with rows, or ``failed``.

        Raises
        ------
        ServerGone
            The server has ended; statements from the one after ``done`` on can be run by another session.
        EnvironmentProblem
            It has ended, and it is unknown whether a statement was done.
        Refused
            The server does not do this; nothing was done.
        """
        arguments = {"text": self.text, "path": self.path, "as_json": as_json, "keep_going": keep_going}
        request = {"do": "sql", "settings": self.agreed, "pid": os.getpid(), "arguments": arguments}
        try:
            for message in self.server.ask(request):
                if "done" in message or "failed" in message:
                    self.done += 1
                yield message
        except ServerGone:
            self._check_can_go_on()
            raise

    def _check_can_go_on(self) -> None:
        statements: list[Any] = []
        # A statement that cannot be read is found again where the script goes on.
        with suppress(RelstateError):
            statements.extend(parse_statement(statement) for statement in split_statements(self.text, self.path))
        before, rest = statements[: self.done], statements[self.done :]
        if not all(_is_in_the_warehouse(statement) for statement in before):
            raise EnvironmentProblem(
                f"the server has ended after statement {self.done} of the script, so settings such as those of SET are lost. "
                "Run the rest with these statements before it (RELSTATE_SERVER=never uses no server)"
            )
        if rest and not _is_repeatable(rest[0]):
            raise EnvironmentProblem(
                f"the server has ended in statement {self.done + 1} of the script, which may be done or not; look, then run it "
                "or what comes after it (RELSTATE_SERVER=never does without a server)"
            )


def _is_repeatable(statement: Any) -> bool:
    return isinstance(statement, _REPEATABLE) or (isinstance(statement, OtherStatement) and statement.is_query)


def _is_in_the_warehouse(statement: Any) -> bool:
    if isinstance(statement, OtherStatement):
        return statement.is_query or statement.keyword in _CHANGES_ROWS
    return isinstance(statement, _KEPT_IN_THE_WAREHOUSE)
