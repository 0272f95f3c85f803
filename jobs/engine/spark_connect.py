"""Sessions of Spark Connect servers, and sessions beside a session of either kind."""

from __future__ import annotations

import atexit
import os
import socket
import warnings
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from relstate_dagster.jobs.engine.spark_release import spark_release
from relstate_dagster.state_lib.errors import EnvironmentProblem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PORT: Final = 15002
_ANSWERS_SECONDS: Final = 20
#: Variables that make the client go by way of a proxy.
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")
#: Settings of sessions of servers, which new sessions beside them begin with.
_SETTINGS: Final[weakref.WeakKeyDictionary[SparkSession, Mapping[str, str]]] = weakref.WeakKeyDictionary()
#: Sessions of servers that this process has opened. One that Python collects closes its connection then, in whatever thread
#: that is: before Spark 4.2 the client waits for itself forever.
_OPEN: Final[list[SparkSession]] = []


def connect(address: str, settings: Mapping[str, str]) -> SparkSession:
    """Open, or join, the session of this process with the server at an address.

    Parameters
    ----------
    address : ``sc://host:port``, with the parameters that Spark's client takes.
    settings : of the session, and of those beside it.

    Raises
    ------
    EnvironmentProblem
        The client is not installed, nothing listens at the address, or the server is of another release of Spark.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - importing PySpark takes 0.5 s, which definitions must not

    # Of the settings that plans hold, Spark advises against some to whoever sets them over Spark Connect.
    warnings.filterwarnings("ignore", message="The SQL config ", module="pyspark.sql.connect.conf")
    running = SparkSession.getActiveSession()
    _check_is_there(address)
    try:
        session = SparkSession.builder.remote(address).getOrCreate()
    except ImportError as problem:
        raise EnvironmentProblem(
            f"Spark Connect's client is not installed ({problem}): `pip install 'relstate-dagster[connect]'`."
        ) from problem
    except Exception as problem:
        raise EnvironmentProblem(f"the Spark Connect server at {address} opens no session: {problem}") from problem
    if session is not running:
        _release_at_exit(session)
    if not session.version.startswith(f"{spark_release()}."):
        theirs = ".".join(session.version.split(".")[:2])
        raise EnvironmentProblem(
            f"the server at {address} runs Spark {session.version}, and Spark {spark_release()} is installed here: views are "
            f"planned for one of them. Install the server's: `pip install 'pyspark~={theirs}.0'`"
        )
    _configure(session, settings)
    return session


def is_remote(session: SparkSession) -> bool:
    """Whether a session is one of a server.

    It shows neither plans nor a JVM.
    """
    return not hasattr(session, "_jsparkSession")


def new_session(spark: SparkSession) -> SparkSession:
    """A session without temporary views, with the settings that Spark was started with.

    Parameters
    ----------
    spark : of either kind; the new one is on the same Spark.
    """
    if not is_remote(spark):
        return spark.newSession()
    remote: Any = spark
    # Spark Connect has no call for it. Its client holds the server's address and the user.
    session: SparkSession = remote.builder.channelBuilder(remote.client._builder).create()
    _release_at_exit(session)
    _configure(session, _SETTINGS.get(spark, {}))
    return session


def set_all(session: SparkSession, settings: Mapping[str, str]) -> None:
    """Set many settings of a session, of either kind."""
    conf: Any = session.conf
    if settings and is_remote(session):
        conf._set_all(configs=dict(settings), silent=False)  # one call to the server, and not one each
        return
    for name, setting in settings.items():
        conf.set(name, setting)


def _configure(session: SparkSession, settings: Mapping[str, str]) -> None:
    """Set what new sessions beside this one begin with too."""
    set_all(session, settings)
    _SETTINGS[session] = dict(settings)


def _check_is_there(address: str) -> None:
    """Refuse an address at which nothing listens.

    The client would call it for ten minutes, in silence.
    """
    if any(os.environ.get(name) for name in _PROXIES):
        return
    found = urlsplit(address)
    try:
        socket.create_connection((found.hostname or "", found.port or _PORT), timeout=_ANSWERS_SECONDS).close()
    except (OSError, ValueError) as problem:
        raise EnvironmentProblem(f"no Spark Connect server answers at {address}: {problem}") from problem


def _release_at_exit(session: SparkSession) -> None:
    """Have the server drop a session when this process ends.

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
