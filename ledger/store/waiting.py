"""Bringing results from a thread of the store to those who wait, with one wake-up per event loop.

A future that was cancelled or whose loop is gone is passed over: what was committed stays committed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Ticket(NamedTuple):
    """Who waits: a task of an event loop, or (without a loop) a thread."""

    loop: asyncio.AbstractEventLoop | None
    future: asyncio.Future[Any] | concurrent.futures.Future[Any]


class Done(NamedTuple):
    """A result, or the error that stands in its place, for one ticket."""

    ticket: Ticket
    value: object
    error: BaseException | None


class Notice(NamedTuple):
    """A listener to call: in its loop, or (without one) on the thread that brings the news."""

    loop: asyncio.AbstractEventLoop | None
    listener: Callable[..., object]


Call = tuple[Callable[..., object], tuple[object, ...]]


def here() -> Ticket:
    """A ticket for the running event loop."""
    loop = asyncio.get_running_loop()
    return Ticket(loop, loop.create_future())


def blocking() -> Ticket:
    """A ticket for this thread."""
    return Ticket(None, concurrent.futures.Future())


def deliver(done: Iterable[Done], news: Iterable[tuple[Notice, tuple[object, ...]]] = ()) -> None:
    """Wake everyone, each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, tuple[list[Done], list[Call]]] = {}
    for item in done:
        loop = item.ticket.loop
        if loop is None:
            _settle(item)
        else:
            waiting = by_loop.get(loop)
            if waiting is None:
                by_loop[loop] = ([item], [])
            else:
                waiting[0].append(item)
    for notice, arguments in news:
        if notice.loop is None:
            notice.listener(*arguments)
        else:
            by_loop.setdefault(notice.loop, ([], []))[1].append((notice.listener, arguments))
    for loop, (items, calls) in by_loop.items():
        try:
            loop.call_soon_threadsafe(_wake, items, calls)
        except RuntimeError:
            continue  # that loop was closed: nobody waits there any more


def _wake(items: list[Done], calls: list[Call]) -> None:
    for item in items:
        _settle(item)
    for listener, arguments in calls:
        listener(*arguments)


def _settle(item: Done) -> None:
    future = item.ticket.future
    if future.done():
        return
    if item.error is not None:
        future.set_exception(item.error)
    else:
        future.set_result(item.value)
