"""Finding the server of a warehouse, starting and stopping it, and asking it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from relstate_dagster.server.channel import Message, ServerGone, connect
from relstate_dagster.server.server_file import Place, Registered
from relstate_dagster.server.settings import ServerSettings
from relstate_dagster.state_lib import errors
from relstate_dagster.state_lib.errors import DeclarationError, EnvironmentProblem, RelstateError

#: Values of ``--server``: use a running server if there is one; use none; start one if none runs. Others are addresses.
AUTO, NEVER, START = "auto", "never", "start"
_START_SECONDS: Final = 120.0


class Refused(Exception):
    """The server does not do this for who asks, and says why."""


@dataclass(frozen=True, slots=True)
class ServerAt:
    """A server that has answered."""

    registered: Registered

    def ask(self, request: Message) -> Iterator[Message]:
        """Ask for something, and yield the answers as they come, up to the last one.

        Who stops taking them cancels the request.

        Raises
        ------
        ServerGone
            The server has ended before it was done.
        Refused
            It does not do this; nothing was done.
        RelstateError
            What it was asked for has failed.
        """
        channel = connect(self.registered.address, self.registered.token)
        try:
            channel.send(request)
            while True:
                message = channel.receive()
                if "refused" in message:
                    raise Refused(message["refused"])
                if "error" in message:
                    raise _error(message["error"])
                yield message
                if "end" in message:
                    return
        finally:
            channel.close()

    def status(self) -> dict[str, Any]:
        """Return what the server says of itself.

        Raises
        ------
        ServerGone
            It does not answer.
        """
        found: dict[str, Any] = next(iter(self.ask({"do": "status"})))["end"]
        return found


def find(warehouse: str) -> ServerAt | None:
    """The server of a warehouse; None without one.

    Remains of a dead one are removed.
    """
    place = Place(warehouse)
    registered = place.read()
    if registered is None or registered.warehouse != place.warehouse:
        return None
    try:
        connect(registered.address, registered.token).close()
    except ServerGone:
        # One that is stopped (by SIGSTOP, say) holds its place and is not forgotten.
        if not place.is_held():
            place.forget(registered)
        return None
    return ServerAt(registered)


def server_for(wanted: str, settings: ServerSettings) -> ServerAt | None:
    """Return the wanted server: AUTO, NEVER, START or an address.

    Raises
    ------
    DeclarationError
        There is no server at that address.
    """
    if wanted == NEVER or settings.master.startswith("sc://"):
        return None
    found = find(settings.warehouse)
    if wanted == AUTO or (found is not None and wanted == START):
        return found
    if wanted == START:
        return started(settings)
    if found is None or found.registered.address != wanted:
        there = "none is running" if found is None else f"its server is at {found.registered.address}"
        raise DeclarationError(
            f"server {wanted!r} is not that of {settings.warehouse}, {there}; it is {AUTO}, {NEVER}, {START} or an address"
        )
    return found


def started(settings: ServerSettings) -> ServerAt:
    """Start a server, and return it once it answers.

    Raises
    ------
    EnvironmentProblem
        There is one already, or it has not started.
    """
    place = Place(settings.warehouse)
    if place.is_held():
        raise EnvironmentProblem(f"a server of {place.warehouse} is there already: relstate server status")
    place.created_folder()
    with place.log_path.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "relstate_dagster.server.process"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    assert process.stdin is not None
    with process.stdin:
        json.dump(asdict(settings), process.stdin)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        registered = place.read()
        if registered is not None and registered.pid == process.pid:
            return ServerAt(registered)
        if process.poll() is not None:
            raise EnvironmentProblem(f"the server of {place.warehouse} has not started: {_last_line(place.log_path)}")
        time.sleep(0.05)
    process.kill()
    raise EnvironmentProblem(f"the server of {place.warehouse} is not there after {_START_SECONDS:.0f} s: {place.log_path}")


def stopped(warehouse: str, wait_seconds: float = 60.0) -> bool:
    """End the server of a warehouse after its request; False without one.

    Raises
    ------
    EnvironmentProblem
        It has not ended in time.
    """
    found = find(warehouse)
    if found is None:
        return False
    with suppress(ServerGone):
        list(found.ask({"do": "stop"}))
    place, deadline = Place(warehouse), time.monotonic() + wait_seconds
    while place.is_held():
        if time.monotonic() > deadline:
            raise EnvironmentProblem(
                f"the server of {place.warehouse} (process {found.registered.pid}) is still at work; ask again, "
                "or end the process"
            )
        time.sleep(0.05)
    return True


def _error(problem: dict[str, str]) -> RelstateError:
    """An error of the server, of the same class if known here."""
    known = getattr(errors, problem["class"], None)
    if isinstance(known, type) and issubclass(known, RelstateError):
        return known(problem["message"])
    kind = type(problem["class"], (RelstateError,), {"__module__": problem["module"]})
    raised: RelstateError = kind(problem["message"])
    return raised


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return f"{lines[-1] if lines else 'it problem nothing'} ({log})"
