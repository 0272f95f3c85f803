"""The process of a server.

``python -m relstate_dagster.server.process``, with its settings as JSON on standard input.

One request works with Spark at a time, and others wait with a message; ``status`` is answered at once.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import secrets
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import Warehouse
from relstate_dagster.jobs.catalog.waiting import seconds_to_wait
from relstate_dagster.jobs.engine import create_session
from relstate_dagster.jobs.engine.jvm import is_working
from relstate_dagster.server.channel import Channel, Message, ServerGone, accepted, address_text, listener
from relstate_dagster.server.memory import JavaMemory, process_bytes
from relstate_dagster.server.server_file import Place, Registered
from relstate_dagster.server.settings import ServerSettings, difference
from relstate_dagster.server.warm_up import WarmUp
from relstate_dagster.server.work import ANSWERS, DROP_VIEWS, METHODS, SQL, Cancelled, Job, Works
from relstate_dagster.state_lib.errors import EpochError, RelstateError
from relstate_dagster.state_lib.lake.storage import use_options

_log = logging.getLogger("relstate.server")

#: How often a connection is asked whether anybody is still there, and the JVM to cancel what has begun since.
_LOOK_SECONDS = 0.2


@dataclass
class _Now:
    """Present work of the server, for ``status`` and waiting clients."""

    doing: str = ""
    since: float = 0.0
    requests: int = 0
    last_ended: float = field(default_factory=time.monotonic)


class Server:
    """Answers requests on the socket of a warehouse.

    Parameters
    ----------
    spark : its session.
    settings : that it was started with.
    """

    def __init__(self, spark: SparkSession, settings: ServerSettings) -> None:
        self._spark = spark
        self._settings = settings
        self._agreed = settings.agreed()
        self._works = Works(spark, Warehouse(settings.warehouse, settings.functions))
        self._java = JavaMemory(spark)
        self._busy = threading.Lock()
        self._warm_up: WarmUp | None = None
        self._now = _Now()
        self._started = time.monotonic()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Take no further request, and end once the one that is at work has ended."""
        self._stopped.set()

    def serve(self, place: Place) -> None:
        """Publish the address, and answer until stopped or idle for long."""
        token = secrets.token_hex(16)
        folder = tempfile.mkdtemp(prefix="relstate-")
        listening = listener(folder)
        registered = Registered(os.getpid(), address_text(listening.address), token, place.warehouse)
        # The executors of a cluster do not see a folder of this machine.
        if self._settings.warm_up and self._settings.spark().is_local:
            self._warm_up = WarmUp(self._spark, Path(folder, "warming"))
            self._warm_up.start()
        try:
            place.write(registered)
            threading.Thread(target=self._accept, args=(listening, token), daemon=True).start()
            _log.info("ready, process %d, for %s", os.getpid(), place.warehouse)
            while not self._stopped.wait(1.0):
                self._end_when_idle()
        finally:
            self._end_warm_up()
            listening.close()
            place.forget(registered)
        with self._busy:
            _log.info("ended after %d requests", self._now.requests)

    def _end_warm_up(self) -> None:
        if self._warm_up is not None:
            self._warm_up.stop()

    def _end_when_idle(self) -> None:
        if self._now.doing:
            return
        if time.monotonic() - self._now.last_ended > 60 * self._settings.idle_minutes:
            _log.info("no request for %g minutes", self._settings.idle_minutes)
            self.stop()

    def _accept(self, listening: Any, token: str) -> None:
        while not self._stopped.is_set():
            try:
                connection = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection, token), daemon=True).start()

    def _answer(self, connection: Any, token: str) -> None:
        channel: Channel | None = None
        try:
            channel = accepted(connection, token)
            request = channel.receive()
            if request.get("do") == "status":
                channel.send({"end": self._status()})
            elif request.get("do") == "stop":
                self.stop()
                channel.send({"end": None})
            else:
                self._work(channel, request)
        except ServerGone as error:
            _log.debug("a connection was closed: %s", error)
        except Exception:
            _log.exception("a request failed")
        finally:
            if channel is not None:
                channel.close()

    def _status(self) -> Message:
        now = time.monotonic()
        return {
            "pid": os.getpid(),
            "warehouse": self._settings.warehouse,
            "version": importlib.metadata.version("relstate-dagster"),
            "doing": self._now.doing,
            "doing_seconds": round(now - self._now.since, 1) if self._now.doing else 0.0,
            "is_warming_up": self._warm_up is not None and self._warm_up.is_running,
            "requests": self._now.requests,
            "up_seconds": round(now - self._started, 1),
            "idle_seconds": 0.0 if self._now.doing else round(now - self._now.last_ended, 1),
            "idle_minutes": self._settings.idle_minutes,
            "python_bytes": process_bytes(os.getpid()),
            "java_bytes": self._java.process_bytes(),
            "java_heap_bytes": self._java.heap_bytes(),
            "threads": threading.active_count(),
            "java_threads": self._java.threads(),
            "settings": {name: value for name, value in self._agreed.items() if value},
        }

    # -- requests that work with Spark ----------------------------------------------------------------------------

    def _work(self, channel: Channel, request: Message) -> None:
        refused = self._refused(request)
        if refused is not None:
            _log.info("refused: %s", refused)
            channel.send({"refused": refused})
            return
        self._end_warm_up()
        doing = f"{request['do']} for process {request.get('pid', '?')}"
        if not self._has_turn(channel, request):
            return
        try:
            self._now.doing, self._now.since = doing, time.monotonic()
            _log.info("%s", doing)
            self._watched(channel, request, doing)
        finally:
            _log.info("%s: %.2f s", doing, time.monotonic() - self._now.since)
            self._now.doing, self._now.last_ended = "", time.monotonic()
            self._now.requests += 1
            self._busy.release()
            self._end_when_large()

    def _refused(self, request: Message) -> str | None:
        """Return why a request is none that this server does."""
        there = f"the server of {self._settings.warehouse} (process {os.getpid()})"
        differs = difference(self._agreed, request.get("settings", {}))
        if differs is not None:
            return f"{there} has other settings: {differs}"
        if request.get("do") not in {*METHODS, *ANSWERS, SQL, DROP_VIEWS}:
            return f"{there} does not know {request.get('do')!r}"
        if self._stopped.is_set():
            return f"{there} is about to end"
        if not self._has_spark():
            return f"{there} has lost Spark, and ends"
        return None

    def _has_spark(self) -> bool:
        """Whether the JVM is there; the server ends without it."""
        has_spark = is_working(self._spark.sparkContext)
        if not has_spark:
            _log.info("Spark is gone")
            self.stop()
        return has_spark

    def _has_turn(self, channel: Channel, request: Message) -> bool:
        """Wait for the request that is at work; False where who asks has gone meanwhile."""
        deadline, shown = time.monotonic() + seconds_to_wait(request.get("wait_seconds")), ""
        while not self._busy.acquire(timeout=_LOOK_SECONDS):
            doing = self._now.doing
            if time.monotonic() > deadline:
                raise_to(channel, EpochError(f"the server is still busy: {doing}; run again later, or wait longer (--wait)"))
                return False
            if channel.has_more(0):
                return False
            if doing and doing != shown:
                channel.send({"tell": f"waiting for the server: {doing}"})
                shown = doing
        return True

    def _watched(self, channel: Channel, request: Message, doing: str) -> None:
        """Run a request in its own thread, and cancel it if the client hangs up."""
        job = Job(self._spark, lambda text: channel.send({"tell": text}), lambda text: channel.send({"begins": text}))
        # A call into the JVM that is broken off spoils the connection of its thread: no request shares one.
        thread = threading.Thread(target=self._do, args=(channel, request, job, doing))
        thread.start()
        while True:
            thread.join(_LOOK_SECONDS / 4)
            if not thread.is_alive():
                return
            if channel.has_more(0):
                job.cancel()
                thread.join(_LOOK_SECONDS)

    def _do(self, channel: Channel, request: Message, job: Job, doing: str) -> None:
        try:
            job.begin(doing)
            try:
                for item in self._works.do(job, request):
                    channel.send(item)
            except Exception as error:
                job.check()
                if self._has_spark():
                    raise_to(channel, error)
                else:
                    channel.close()  # who asks takes it for the death of the server, and goes on
            else:
                channel.send({"end": None})
        except (Cancelled, ServerGone):
            _log.info("%s: cancelled", doing)

    def _end_when_large(self) -> None:
        used = (process_bytes(os.getpid()) or 0) + (self._java.process_bytes() or 0)
        most = self._settings.most_memory_gb * 2**30
        if used > most:
            _log.info("%.1f GB are in use, of %g: the server ends", used / 2**30, self._settings.most_memory_gb)
            self.stop()


def raise_to(channel: Channel, error: Exception) -> None:
    """Have an error raised where the request came from."""
    if not isinstance(error, RelstateError):
        _log.error("a request failed", exc_info=error)
    kind = type(error)
    channel.send({"error": {"class": kind.__name__, "module": kind.__module__, "message": str(error)}})


def main() -> int:
    """Run a server until it ends; 1 if another runs, or Spark does not start."""
    settings = ServerSettings(**json.load(sys.stdin))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    _log.setLevel(logging.INFO)
    use_options(settings.storage)
    place = Place(settings.warehouse)
    try:
        with place.held():
            spark = create_session(settings.spark())
            server = Server(spark, settings)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: server.stop())
            server.serve(place)
    except RelstateError as error:
        _log.info("%s: %s", type(error).__name__, error)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    # Native threads may still be there, and an interpreter that is torn down around them aborts.
    os._exit(code)
