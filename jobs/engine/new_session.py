"""Sessions beside a session, on the same Spark."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Settings of sessions of Spark Connect servers, which new sessions beside them begin with.
_SETTINGS: Final[weakref.WeakKeyDictionary[SparkSession, Mapping[str, str]]] = weakref.WeakKeyDictionary()


def new_session(spark: SparkSession) -> SparkSession:
    """A session without temporary views, with the settings that Spark was started with."""
    if hasattr(spark, "_jsparkSession"):
        return spark.newSession()
    remote: Any = spark
    # Spark Connect has no call for it. Its client holds the server's address and the user.
    session: SparkSession = remote.builder.channelBuilder(remote.client._builder).create()
    configure(session, _SETTINGS.get(spark, {}))
    release_at_end(session)
    return session


def configure(session: SparkSession, settings: Mapping[str, str]) -> None:
    """Set what new sessions beside this one begin with too, over Spark Connect."""
    set_all(session, settings)
    _SETTINGS[session] = dict(settings)


def set_all(session: SparkSession, settings: Mapping[str, str]) -> None:
    """Set many settings of a session."""
    conf: Any = session.conf
    if settings and not hasattr(session, "_jsparkSession") and hasattr(conf, "_set_all"):
        conf._set_all(configs=dict(settings), silent=False)  # one call to the server, and not one each
        return
    for name, setting in settings.items():
        conf.set(name, setting)


def release_at_end(session: SparkSession) -> None:
    """Have a Spark Connect server drop a session once nothing here refers to it.

    By default it does so after an hour.
    """
    remote: Any = session
    weakref.finalize(session, _release, remote.client)


def _release(client: Any) -> None:
    with suppress(Exception):
        # A server that has ended would be called again for minutes.
        client.set_retry_policies([])
        client.release_session()
        client.close()
