"""Sessions that are kept and lent: starting one costs as much as a small job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine.session import SHUFFLE_PARTITIONS
from relstate_dagster.jobs.engine.workloads import Workload, session_for


class SessionPool:
    """Sessions on one Spark, each lent to one piece of work at a time.

    There are no more than are used at the same time: each holds on to what it has computed last.

    Parameters
    ----------
    spark : any session with Delta.
    """

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        self._spark = spark
        self._warehouse = warehouse
        #: All sessions, and those that are not borrowed at the moment.
        self._sessions: list[SparkSession] = []
        self._idle: dict[tuple[object, ...], list[SparkSession]] = {}
        self._lock = threading.Lock()

    @property
    def configured_tasks(self) -> int:
        """Tasks of a shuffle, as Spark is configured."""
        return int(self._spark.conf.get(SHUFFLE_PARTITIONS) or "1")

    @contextmanager
    def lend(self, view: ViewEntry, workload: Workload, shuffle_tasks: int | None = None) -> Iterator[SparkSession]:
        """Borrow a session with a view's settings for exclusive use.

        While a view is published, its session carries that commit's transaction id.

        Parameters
        ----------
        shuffle_tasks : of each shuffle; ``None``: as the workload has them.
        """
        idle = self._idle.setdefault((tuple(sorted(view.settings.items())), workload), [])
        with self._lock:
            session = idle.pop() if idle else None
        if session is None:
            functions, is_local = self._warehouse.functions, self._warehouse.is_local
            session = session_for(self._spark, view.settings, workload, functions, is_local=is_local)
            with self._lock:
                self._sessions.append(session)
        if shuffle_tasks is not None:
            session.conf.set(SHUFFLE_PARTITIONS, str(shuffle_tasks))
        try:
            yield session
        finally:
            with self._lock:
                idle.append(session)

    def all(self) -> list[SparkSession]:
        """All sessions, lent or not."""
        with self._lock:
            return list(self._sessions)
