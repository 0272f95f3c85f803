"""Processes of runs: one for each at work, and one ready for the next."""

from __future__ import annotations

import fcntl
import json
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from relstate_dagster.jobs.catalog.locking import is_free
from relstate_dagster.jobs.engine.cache import cache_folder

#: What a worker answers once a run is its own.
TAKEN: Final = b"taken\n"

#: A process that has not begun a run after so long does not: it imports for a second or two.
_BEGIN_SECONDS: Final = 60.0
_OLD_SECONDS: Final = 24 * 60 * 60


@dataclass
class RunWorker:
    """A process that waits for a run, or has one.

    Parameters
    ----------
    lock : a file that the process keeps locked while it lives.
    """

    process: subprocess.Popen[bytes]
    lock: Path
    _socket: socket.socket

    @classmethod
    def started(cls, executable: str, instance: str) -> RunWorker:
        """Start one.

        Parameters
        ----------
        executable : the Python of the code location.
        instance : a serialized reference of Dagster's instance.
        """
        lock = _locks() / uuid.uuid4().hex
        ours, theirs = socket.socketpair()
        # The process has the lock from its first moment, since it shares this open file; it alone once this one is closed.
        with theirs, lock.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            passed = [theirs.fileno(), file.fileno()]
            command = [executable, "-m", "relstate_dagster.instance.run_worker", *map(str, [*passed, lock])]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=passed)  # noqa: S603
        with suppress(OSError):
            ours.sendall(instance.encode() + b"\n")
        return cls(process, lock, ours)

    def take(self, arguments: list[str]) -> bool:
        """Give it a run; return whether it has it.

        Not if it has ended, or could not begin. Then it is no more.

        Parameters
        ----------
        arguments : those of ``dagster api``.
        """
        self._socket.settimeout(_BEGIN_SECONDS)
        with self._socket, suppress(OSError):
            self._socket.sendall(json.dumps(arguments).encode() + b"\n")
            if self._socket.makefile("rb").readline() == TAKEN:
                return True
        self.process.kill()  # what has not answered must not begin later
        self.wait()
        return False

    def wait(self) -> int:
        """Wait until it has ended, and return the code that it ended with."""
        code = self.process.wait()
        self.lock.unlink(missing_ok=True)
        return code


@dataclass
class RunWorkers:
    """Gives a run the process that is ready, or a new one."""

    _ready: dict[str, RunWorker] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(
        self, executable: str, instance: str, arguments: list[str], before: Callable[[RunWorker], None] = lambda _worker: None
    ) -> RunWorker | None:
        """The process that has a run; None if this Python can have none.

        Parameters
        ----------
        before : called with a process before it is given the run.
        """
        with self._lock:
            ready = self._ready.pop(executable, None)
        worker = ready or RunWorker.started(executable, instance)
        before(worker)
        if worker.take(arguments):
            return worker
        return None if ready is None else self.take(executable, instance, arguments, before)

    def make_ready(self, executable: str, instance: str) -> None:
        """Start the process of the next run, unless there is one."""
        with self._lock:
            ready = self._ready.get(executable)
            if ready is not None and ready.process.poll() is None:
                return
            self._ready[executable] = RunWorker.started(executable, instance)
        if ready is not None:
            ready.wait()


def _locks() -> Path:
    """The folder of locks, without those that processes which were killed long ago have left."""
    folder = cache_folder() / "runs"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for lock in folder.iterdir():
        with suppress(OSError):
            if lock.stat().st_mtime < time.time() - _OLD_SECONDS and is_free(lock):
                lock.unlink()
    return folder
