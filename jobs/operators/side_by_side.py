"""Parts of an epoch that do not need each other, computed at the same time.

A step of a small epoch is a plan made by one thread and a job of one task: one after the other, they leave all cores but
one idle. What each part computes does not depend on when it runs, so neither does the result.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class Once:
    """Calls shared by threads: the first runs it, the others wait."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Future[Any]] = {}
        self._lock = Lock()

    def once(self, name: Hashable, call: Callable[[], T]) -> T:
        """The result of the call of that name, or its error."""
        with self._lock:
            known = self._known.get(name)
            mine = known is None
            future: Future[T] = Future() if known is None else known
            if mine:
                self._known[name] = future
        if mine:
            _settle(future, call)
        return future.result()


class SideBySide(Once):
    """Runs calls at the same time, and calls that are asked for several times once.

    A call may itself run others: threads are started as they are needed, so none ever waits for a free one.
    """

    def __init__(self) -> None:
        super().__init__()
        # More threads than a plan has leaves; each is started only when no other is idle.
        self._pool = ThreadPoolExecutor(max_workers=1024, thread_name_prefix="relstate-step")

    def __enter__(self) -> SideBySide:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None) -> None:
        self._pool.shutdown()

    def all(self, *calls: Callable[[], T]) -> list[T]:
        """Results of all calls, in order.

        The error of the first that failed, once all have ended.
        """
        if not calls:
            return []
        others = [self._pool.submit(call) for call in calls[1:]]
        own: Future[T] = Future()
        _settle(own, calls[0])
        return [future.result() for future in _ended([own, *others])]


def _settle(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # raised again where the result is asked for
        future.set_exception(error)


def _ended(futures: list[Future[T]]) -> list[Future[T]]:
    for future in futures:
        future.exception()
    return futures
