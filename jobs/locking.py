"""One run of a warehouse at a time, on one machine: a file lock that the operating system frees when its holder dies.

Between machines the catalog's compare and swap and the transaction ids of the state commits keep runs apart; this lock
only turns the common case into a clear answer before any work is done.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from state_lib.errors import EpochError

try:
    import fcntl
except ImportError:  # pragma: no cover - no such lock on Windows; the catalog still decides
    fcntl = None  # type: ignore[assignment]


@contextmanager
def run_lock(
    path: Path | None, run_id: str, *, doing: str = "running an epoch", shared: bool = False, wait_seconds: float | None = None
) -> Iterator[None]:
    """Hold the warehouse for one run.

    Parameters
    ----------
    path : the lock file; ``None`` where the warehouse is not on a local file system.
    run_id, doing : told to whoever is refused.
    shared : others that share it may hold it as well.
    wait_seconds : how long to wait for another run to end; by default what RELSTATE_LOCK_WAIT_SECONDS says, else not at all.

    Raises
    ------
    EpochError : another run holds the warehouse; names its process, run id and what it does.
    """
    if wait_seconds is None:
        wait_seconds = float(os.environ.get("RELSTATE_LOCK_WAIT_SECONDS", "0"))
    if path is None or fcntl is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise EpochError(_held_by(path)) from error
                time.sleep(0.1)
        lock.seek(0)
        lock.truncate()
        json.dump({"pid": os.getpid(), "run_id": run_id, "doing": doing}, lock)
        lock.flush()
        yield


def _held_by(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        who = f"process {holder['pid']} (run {holder['run_id']}) is {holder.get('doing', 'running an epoch')}"
    except (OSError, ValueError, KeyError):
        who = "another process is at work"
    return f"{who} in this warehouse; wait for it to end, or raise the time to wait (RELSTATE_LOCK_WAIT_SECONDS)"
