"""The command's way in and out: every verb, and errors without a traceback."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from rich.markup import escape

# Importing a verb registers it; what is heavy to import the verbs import as they run.
from relstate_dagster.cli import (  # noqa: F401
    check,
    compact,
    compare,
    demo,
    diff,
    doctor,
    drop,
    explain,
    init,
    metrics,
    plan,
    prepare,
    repair,
    run,
    server,
    snapshot,
    sql,
    state,
    status,
    vacuum,
    view_tests,
    why,
)
from relstate_dagster.cli.app import Interrupted, app, console
from relstate_dagster.state_lib.errors import RelstateError

#: The code of a process that Ctrl-C has ended, as shells have it.
_INTERRUPTED = 130


def main() -> None:
    """Run the command line; a user's error prints one line and exits with 1."""
    try:
        app()
    except RelstateError as error:
        _fail(error, str(error))
    except Interrupted:
        console.print("interrupted: what was committed stays, and the next run goes on from there", highlight=False)
        sys.exit(_INTERRUPTED)
    except Exception as error:
        if not _is_from_outside(error):
            raise
        # Imports PySpark, which has been by now.
        from relstate_dagster.jobs.view_epoch.error_messages import ends_the_run, reason_of  # noqa: PLC0415

        ended = ends_the_run(error)
        _fail(ended or error, str(ended or reason_of(error)))


def _fail(error: Exception, message: str) -> NoReturn:
    console.print(f"[red]{type(error).__name__}[/]: {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(1)


def _is_from_outside(error: Exception) -> bool:
    """Whether an error is of Spark, Delta or the disk, not of this package."""
    return isinstance(error, OSError) or type(error).__module__.split(".")[0] in ("pyspark", "py4j", "deltalake", "_internal")


def console_script() -> NoReturn:
    """The installed command: :func:`main` in a process of its own."""
    code: int | str | None = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    leave(code if isinstance(code, int) else int(code is not None))


def leave(code: int) -> NoReturn:
    """End the process with this code, without tearing the interpreter down.

    Native threads (Arrow's, the JVM gateway's) may still exist. A teardown that meets one of them aborts, and a run whose
    work is committed would then be reported as failed. The JVM ends by itself when its parent is gone.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
