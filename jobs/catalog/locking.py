"""Locks of the operating system, freed when their holder dies.

So a dead run is known at once on its own machine.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from urllib.parse import quote

from relstate_dagster.jobs.catalog.waiting import Patience, Waiting

try:
    import fcntl
except ImportError:  # pragma: no cover - no such lock on Windows; leases decide
    fcntl = None  # type: ignore[assignment]


class HolderLocks:
    """A lock file for each process that holds claims on one machine.

    Parameters
    ----------
    folder : where they lie, on this machine.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder if fcntl is not None else None

    @property
    def place(self) -> str:
        """Name of the lock folder on this machine.

        Locks of other places cannot be looked at. Empty without a folder.
        """
        if self._folder is None:
            return ""
        named = self._folder / "place"
        if not named.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                _write_whole(named, uuid.uuid4().hex)
        return f"{socket.gethostname()}:{named.read_text()}"

    @contextmanager
    def held(self, holder: str) -> Iterator[None]:
        """Hold the lock of a holder, a name that no other has."""
        if self._folder is None:
            yield
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(holder)
        try:
            with path.open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield
        finally:
            path.unlink(missing_ok=True)

    def is_free(self, holder: str) -> bool:
        """Whether a holder on this machine is known to be gone."""
        return self._folder is not None and is_free(self._path(holder))

    def _path(self, holder: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{quote(holder, safe='')}.lock"


def is_free(path: Path) -> bool:
    """Whether no process on this machine holds a file's lock, or there is none."""
    try:
        with path.open("r+") as lock:
            return _locked(lock, shared=True)
    except FileNotFoundError:
        return True


@contextmanager
def maintenance_lock(path: Path | None, doing: str, *, shared: bool, patience: Patience) -> Iterator[None]:
    """Keep what deletes old files apart from what writes files that no commit names yet.

    Parameters
    ----------
    path : the lock file; ``None`` where the warehouse is not on a local file system.
    doing : named in the message of a process that does not get the lock.
    shared : others that share it may hold it as well.

    Raises
    ------
    EpochError : another process holds it, for longer than there was time to wait.
    """
    if path is None or fcntl is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        pauses = Waiting(patience)
        while not _locked(lock, shared=shared):
            pauses.pause([_holder(path)])
        lock.seek(0)
        lock.truncate()
        json.dump({"pid": os.getpid(), "doing": doing}, lock)
        lock.flush()
        yield


def _write_whole(path: Path, text: str) -> None:
    """Make a file with some text, all of it at once.

    Raises
    ------
    FileExistsError : it is there already.
    """
    half = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    half.write_text(text)
    try:
        os.link(half, path)
    finally:
        half.unlink()


def _locked(lock: IO[str], *, shared: bool) -> bool:
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
    except (OSError, ValueError):
        holder = {}
    return f"process {holder.get('pid', '(unknown)')}, which is {holder.get('doing', 'at work')} in this warehouse"
