"""The process of a run, ready before it.

``python -m relstate_dagster.instance.run_worker SOCKET LOCK FILE``.

It imports what any run of this package needs, which takes longer than many a run, and nothing of the user's. Its socket brings
two lines: Dagster's instance, which it opens once, and the arguments of ``dagster api execute_run`` for the run whose process
it becomes.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from dagster import DagsterInstance, DagsterRunStatus
from dagster._cli.api import api_cli
from dagster._core.instance.ref import InstanceRef
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import deserialize_value
from dagster._utils import send_interrupt

from relstate_dagster.instance.workers import TAKEN

#: A process that has waited so many seconds for a run, and got none, ends.
IDLE_SECONDS: Final = float(os.environ.get("RELSTATE_RUN_WORKER_IDLE_SECONDS") or 30 * 60)
#: How often a run looks whether it is to end.
_LOOK_SECONDS: Final = 0.5

_IMPORTED: Final = (
    "dagster._core.execution.api",
    "dagster._core.executor.in_process",
    "relstate_dagster.component",
    "relstate_dagster.jobs.api",
    "relstate_dagster.server.runner",
)


def main(arguments: list[str]) -> None:
    """Wait for a run and do it.

    Parameters
    ----------
    arguments : the file descriptors of the socket and of the locked file, and the path of that file. Where this process
        replaces another one, also the arguments of its run.
    """
    descriptor, lock, path, *given = arguments
    atexit.register(Path(path).unlink, missing_ok=True)
    os.set_inheritable(int(lock), False)  # of nobody but this process, so that the lock goes with it
    if given:
        execute(json.loads(given[0]))
        return
    # Ctrl-C at a terminal reaches the whole group: a process that only waits ends without a word.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with socket.socket(fileno=int(descriptor)) as launcher, launcher.makefile("r", encoding="utf-8") as lines:
        launcher.settimeout(IDLE_SECONDS)
        _make_ready(lines.readline())
        imported = dict(_files())
        try:
            line = lines.readline()
        except TimeoutError:
            return
        if not line:  # the launcher has gone
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        launcher.sendall(TAKEN)
    if imported != {path: _stamp(path) for path in imported}:
        # A package was installed, or edited, since: begin again with what is there now.
        os.set_inheritable(int(lock), True)
        again = [sys.executable, "-m", "relstate_dagster.instance.run_worker", "-1", lock, path, line]
        os.execv(sys.executable, again)  # noqa: S606
    execute(json.loads(line))


def execute(arguments: list[str]) -> None:
    """Do a run as ``dagster api execute_run`` does, and end it on termination.

    Parameters
    ----------
    arguments : those of ``dagster api``.
    """
    run = deserialize_value(arguments[-1], ExecuteRunArgs)
    threading.Thread(target=_end_when_canceled, args=(run,), daemon=True, name="end-when-canceled").start()
    api_cli.main(arguments, prog_name="dagster api")


def _end_when_canceled(run: ExecuteRunArgs) -> None:
    """Interrupt the main thread once the run is canceled, from anywhere."""
    assert run.instance_ref
    pause = threading.Event()
    pause.wait(_LOOK_SECONDS)
    with DagsterInstance.from_ref(run.instance_ref) as instance:
        while True:
            with suppress(Exception):  # of a database that does not answer for a moment
                now = instance.get_run_by_id(run.run_id)
                if now is None or now.is_finished:
                    return
                if now.status == DagsterRunStatus.CANCELING:
                    send_interrupt()
                    return
            pause.wait(_LOOK_SECONDS)


def _make_ready(instance: str) -> None:
    """Import what runs need, and open the instance once, which imports what its storages need."""
    for name in _IMPORTED:
        importlib.import_module(name)
    with DagsterInstance.from_ref(deserialize_value(instance, InstanceRef)) as opened:
        opened.get_run_ids(limit=1)


def _files() -> Iterator[tuple[str, tuple[int, int]]]:
    """Files of all imported modules, with marks that tell later edits."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path:
            yield path, _stamp(path)


def _stamp(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116 - of some 2,000 files, between a click and its run
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


if __name__ == "__main__":
    main(sys.argv[1:])
