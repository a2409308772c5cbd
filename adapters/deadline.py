"""Deadlines of many tasks over one timer of their event loop.

A timer of its own for each request, set and taken back, is a tenth of what a send costs the loop. Here what runs out
stands in a table, and the one timer is set for the earliest; it looks who is late and sets itself again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Deadlines:
    """Of one event loop: what is to be called when a time has come and nobody took it back."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._late: dict[object, tuple[float, Callable[[], object]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def put(self, key: object, after_s: float, late: Callable[[], object]) -> None:
        """Call `late` in so many seconds, unless `key` is dropped before."""
        when = self.loop.time() + max(0.0, after_s)
        self._late[key] = (when, late)
        if self._timer is None or when < self._timer.when():
            self._set(when)

    def drop(self, key: object) -> None:
        self._late.pop(key, None)

    def _set(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self.loop.time()
        for key, (when, late) in list(self._late.items()):
            if when <= now:
                del self._late[key]
                late()
        if self._late and self._timer is None:
            self._set(min(when for when, _ in self._late.values()))


class _Latest(threading.local):
    found: Deadlines | None = None


_latest = _Latest()


def deadlines() -> Deadlines:
    """Those of the running event loop. Loops that take turns in one thread get new ones each time, which is as good."""
    loop = asyncio.get_running_loop()
    found = _latest.found
    if found is None or found.loop is not loop:
        found = _latest.found = Deadlines(loop)
    return found


class within:
    """`with within(seconds):` raises `TimeoutError` in the running task when they are over; as `asyncio.timeout`."""

    __slots__ = ("_after_s", "_cancelling", "_deadlines", "_expired", "_task")

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._expired = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task to end")
        self._task = task
        self._cancelling = task.cancelling()
        self._deadlines = deadlines()
        self._deadlines.put(self, self._after_s, self._expire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadlines.drop(self)
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()
