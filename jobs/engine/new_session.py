"""Sessions beside a session, on the same Spark."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Settings of sessions of Spark Connect servers, which new sessions beside them begin with.
_SETTINGS: Final[weakref.WeakKeyDictionary[SparkSession, Mapping[str, str]]] = weakref.WeakKeyDictionary()
#: Sessions of Spark Connect servers that this process has opened. One that Python collects closes its connection then, in
#: whatever thread that is: before Spark 4.2 the client waits for itself forever.
_OPEN: Final[list[SparkSession]] = []


def is_remote(session: SparkSession) -> bool:
    """Whether a session is one of a Spark Connect server.

    It shows neither plans nor a JVM.
    """
    return not hasattr(session, "_jsparkSession")


def new_session(spark: SparkSession) -> SparkSession:
    """A session without temporary views, with the settings that Spark was started with."""
    if not is_remote(spark):
        return spark.newSession()
    remote: Any = spark
    # Spark Connect has no call for it. Its client holds the server's address and the user.
    session: SparkSession = remote.builder.channelBuilder(remote.client._builder).create()
    configure(session, _SETTINGS.get(spark, {}))
    release_at_exit(session)
    return session


def configure(session: SparkSession, settings: Mapping[str, str]) -> None:
    """Set what new sessions beside this one begin with too, over Spark Connect."""
    set_all(session, settings)
    _SETTINGS[session] = dict(settings)


def set_all(session: SparkSession, settings: Mapping[str, str]) -> None:
    """Set many settings of a session."""
    conf: Any = session.conf
    if settings and is_remote(session) and hasattr(conf, "_set_all"):
        conf._set_all(configs=dict(settings), silent=False)  # one call to the server, and not one each
        return
    for name, setting in settings.items():
        conf.set(name, setting)


def release_at_exit(session: SparkSession) -> None:
    """Have a Spark Connect server drop a session when this process ends.

    By default it does so after an hour. The connection is closed as well: one that Python closes last of all waits for threads
    that have ended.
    """
    if not _OPEN:
        atexit.register(_release_all)
    _OPEN.append(session)


def _release_all() -> None:
    for session in _OPEN:
        client: Any = session.client
        with suppress(Exception):
            # A server that has ended would be called again for minutes.
            client.set_retry_policies([])
            client.release_session()
        with suppress(Exception):
            client.close()
