"""Messages between server and clients: JSON over a Unix socket, or loopback.

Both ends prove that they know the server's token, which is in a file that only the user can read, before anything is read.

One request on a connection::

    {"do": "run", "arguments": {…}, "settings": {…}, …} what is asked for, and the settings of who asks
    {"tell": "waiting for …"}                            any number of answers
    {"begins": "view_a: brought to epoch 7"}
    {"item": {…}}
    {"end": null}                                        the last one; or
    {"refused": "…"}                                     nothing was done, who asks goes on by itself
    {"error": {"class": "EpochError", "message": "…"}}

Whoever hangs up before the end has its request cancelled.
"""

from __future__ import annotations

import json
import socket
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import Any, Final, TypeAlias

Message: TypeAlias = dict[str, Any]

HAS_UNIX_SOCKETS: Final = hasattr(socket, "AF_UNIX")
#: A server answers at once, also while it works. One that does not is stopped, or another program.
_HANDSHAKE_SECONDS: Final = 5.0


class ServerGone(Exception):
    """No server answers, or it has ended before it was done."""


class Channel:
    """One end of a connection. One thread may send while another receives."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, message: Message) -> None:
        """Send a message.

        Raises
        ------
        ServerGone
            The other end has hung up.
        """
        try:
            self._connection.send_bytes(json.dumps(message, ensure_ascii=False).encode())
        except OSError as error:
            raise ServerGone(f"the connection is closed: {error}") from error

    def receive(self) -> Message:
        """Return the next message.

        Raises
        ------
        ServerGone
            The other end has hung up, or sends something else.
        """
        try:
            message: Message = json.loads(self._connection.recv_bytes())
        except (OSError, EOFError, ValueError) as error:
            raise ServerGone("the connection is closed") from error
        return message

    def has_more(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for a message.

        Also true where the other end has hung up.
        """
        try:
            return self._connection.poll(seconds)
        except (OSError, EOFError):
            return True

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


def listener(folder: str) -> Listener:
    """Listener of this machine: a socket in a private folder, or a loopback port."""
    if HAS_UNIX_SOCKETS:
        return Listener(f"{folder}/socket", family="AF_UNIX", backlog=16)
    return Listener(("127.0.0.1", 0), family="AF_INET", backlog=16)


def address_text(address: str | tuple[str, int]) -> str:
    """Text of an address: a path, or ``127.0.0.1:port``."""
    return address if isinstance(address, str) else f"{address[0]}:{address[1]}"


def connect(address: str, token: str) -> Channel:
    """Connect to a server.

    Raises
    ------
    ServerGone
        No server listens there, or it has another token.
    """
    host, _, port = address.rpartition(":")
    is_tcp = host == "127.0.0.1" and port.isdigit()
    try:
        connection = Client((host, int(port)) if is_tcp else address, family="AF_INET" if is_tcp else "AF_UNIX")
    except OSError as error:
        raise ServerGone(f"no server listens at {address}: {error}") from error
    _shaken(connection, token, is_server=False)
    return Channel(connection)


def accepted(connection: Connection, token: str) -> Channel:
    """Return the channel of a connection that a listener has accepted.

    Raises
    ------
    ServerGone
        Who connects does not know the token.
    """
    _shaken(connection, token, is_server=True)
    return Channel(connection)


def _shaken(connection: Connection, token: str, *, is_server: bool) -> None:
    key = token.encode()
    steps = (deliver_challenge, answer_challenge) if is_server else (answer_challenge, deliver_challenge)
    try:
        for step in steps:
            if step is answer_challenge and not connection.poll(_HANDSHAKE_SECONDS):
                raise ServerGone("no answer")
            step(connection, key)
    except (AuthenticationError, OSError, EOFError, AssertionError) as error:
        connection.close()
        raise ServerGone(f"the token was not accepted: {error}") from error
    except ServerGone:
        connection.close()
        raise
