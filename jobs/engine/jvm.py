"""The JVM of this process: whether Spark works in it, and how it ended."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkContext

#: What PySpark raises where the JVM has ended, or the session was stopped.
GONE: Final = (Py4JError, OSError, AttributeError)

#: How long a JVM may take to end that has closed its connections.
_END_SECONDS: Final = 5
_KILLED: Final = "it was killed, perhaps by the system for want of memory"
#: What an exit of the JVM means: Spark's own code, and that of a process which was killed.
_EXITS: Final = {52: "its memory ran out", -signal.SIGKILL: _KILLED, 128 + signal.SIGKILL: _KILLED}


def has_jvm() -> bool:
    """Whether this process has a JVM.

    One that uses Spark Connect alone has none.
    """
    return SparkContext._gateway is not None


def is_working(context: SparkContext | None = None) -> bool:
    """Whether Spark works.

    While it ends, other work fails for causes that are not its own.

    Parameters
    ----------
    context : by default that of this process. Without one, as with Spark Connect, nothing is known: it is taken to work.
    """
    context = context or SparkContext._active_spark_context
    if context is None:
        return True
    try:
        return not context._jsc.sc().isStopped()
    except GONE:
        return False


def how_it_ended() -> str | None:
    """Exit message of the JVM that this process started.

    ``None`` if there is none, or it is alive.
    """
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    code = process.poll()
    return None if code is None else _EXITS.get(code, f"its JVM ended with exit code {code}")
