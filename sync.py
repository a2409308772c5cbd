"""The synchronous face, for scripts: the same gateway, driven by an event loop in a thread of its own.

    with msgledger.sync.open("ledger.db", channels=[telegram]) as gateway:
        delivery = gateway.send(Message.text("The build is green.", to=Target.group("telegram", "ops")))

Channels stay async. Ctrl-C while a call waits ends the waiting and nothing else: what was recorded is owed, a request
in flight settles when the gateway closes. Never use it where an event loop runs already; `msgledger.open` is for that.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from .adapters.surface import Channel
from .ledger.dossier import Dossier
from .ledger.errors import NotPossible
from .ledger.limits import APPEND_WAIT_MS
from .ledger.message import Message, Target
from .ledger.store.history import Recorded
from .lifecycle.gateway import Gateway
from .lifecycle.inbound.route import SessionContext
from .lifecycle.inbound.spoken import HISTORY_USUAL
from .lifecycle.plan import Durable
from .lifecycle.reads import IntentRead, Reading
from .lifecycle.send import Delivery
from .projections.conversation import Entry
from .projections.intents import Row
from .projections.query import Filters, Moment
from .projections.timeline import Timeline

T = TypeVar("T")


class SyncReading:
    """Made by `reading`; use it with `with`. Its methods may be called from several threads."""

    def __init__(self, reads: Gateway | Reading) -> None:
        self._reads = reads
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # ---- life

    def __enter__(self) -> Self:
        if self._loop is not None:
            raise NotPossible("it is open already")
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="msgledger sync", daemon=True)
        self._loop, self._thread = loop, thread
        thread.start()
        try:
            self._call(self._reads.start)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Accept nothing new, let attempts in flight end until their deadline, and leave the rest owed.

        A second time does nothing. Ctrl-C here gives up the attempts in flight: the next start finds them in doubt.
        """
        if self._loop is None:
            return
        try:
            self._call(self._reads.close)
        finally:
            self._end()

    # ---- reading

    def intent(
        self,
        of: str | Delivery,
        *,
        position: int | None = None,
        recorded_at: Moment | None = None,
        at: Moment | None = None,
    ) -> Dossier:
        """One intent with its content, as it stands or as it stood; see `IntentRead.as_of`. Raises `NoSuchIntent`."""
        return self._call(lambda: self._asked(of, position, recorded_at, at))

    def timeline(
        self,
        of: str | Delivery,
        *,
        position: int | None = None,
        recorded_at: Moment | None = None,
        at: Moment | None = None,
    ) -> Timeline:
        """Its life as rows with marks."""
        return self._call(lambda: self._asked(of, position, recorded_at, at).timeline())

    def intents(
        self,
        *,
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
        **filters: Unpack[Filters],
    ) -> list[Row]:
        """Rows of the view, newest first; see `Reads.intents`."""
        return self._call(lambda: self._reads.intents(limit=limit, before=before, after=after, **filters))

    def all_intents(self, **filters: Unpack[Filters]) -> Iterator[Row]:
        """All of them, newest first, a page in memory at a time."""
        before: int | None = None
        while rows := self.intents(before=before, **filters):
            yield from rows
            before = rows[-1].position

    def owed(
        self,
        *,
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
        **filters: Unpack[Filters],
    ) -> list[Row]:
        """What is not at its end, oldest first."""
        return self._call(lambda: self._reads.owed(limit=limit, before=before, after=after, **filters))

    def by_platform_id(self, channel: str, platform_id: str, target: Target | None = None) -> list[str]:
        """The intents that made, changed or deleted the message with that id, newest first."""
        return self._call(lambda: self._reads.by_platform_id(channel, platform_id, target))

    def history(
        self,
        session: str | SessionContext,
        *,
        limit: int = HISTORY_USUAL,
        before: int | None = None,
        as_of: int | datetime | None = None,
        all: bool = False,
    ) -> list[Entry]:
        """The conversation of a session, oldest first; see `Reads.history`."""
        return self._call(lambda: self._reads.history(session, limit=limit, before=before, as_of=as_of, all=all))

    def events(
        self,
        after: int = 0,
        *,
        follow: bool = False,
        topics: str | Sequence[str] | None = None,
        stream: str | None = None,
    ) -> Iterator[Recorded]:
        """Every event beyond a position, in order; see `Reads.events`. Ctrl-C ends the waiting of `follow`."""
        pages = self._reads.event_pages(after, follow=follow, topics=topics, stream=stream)
        return self._each(pages)

    def _asked(
        self, of: str | Delivery, position: int | None, recorded_at: Moment | None, at: Moment | None
    ) -> IntentRead:
        found = self._reads.intent(of)
        if (position, recorded_at, at) == (None, None, None):
            return found
        return found.as_of(position=position, recorded_at=recorded_at, at=at)

    def _each(self, pages: AsyncGenerator[list[Recorded]]) -> Iterator[Recorded]:
        try:
            while (page := self._call(lambda: anext(pages, None))) is not None:
                yield from page
        finally:
            if self._loop is not None:
                self._call(pages.aclose)

    # ---- the thread

    def _call(self, begin: Callable[[], Awaitable[T]]) -> T:
        """Run it on the loop and wait. A caller that is interrupted takes its waiting away, not the work."""
        loop = self._loop
        if loop is None:
            raise NotPossible("it is not open: use it with `with msgledger.sync.open(...)`, or `reading(...)`")
        if self._thread is threading.current_thread():
            raise NotPossible("a channel or an effect may not call the synchronous gateway: it would wait for itself")
        future = asyncio.run_coroutine_threadsafe(_got(begin()), loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _end(self) -> None:
        """Stop the loop, whatever it still runs, and give everything back."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(), loop)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


class SyncGateway(SyncReading):
    """A gateway that reads and sends. Made by `open`."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(gateway)
        self._gateway = gateway

    def send(self, message: Message, **options: Any) -> Delivery:
        """Record the intent, send it, and say what came of it. Takes the options of `Gateway.send`, raises the same."""
        return self._call(lambda: self._gateway.send(message, **options))

    def edit(self, of: str | Delivery, message: Message, **options: Any) -> Delivery:
        """Change the text of a message that was sent."""
        return self._call(lambda: self._gateway.edit(of, message, **options))

    def delete(self, of: str | Delivery, **options: Any) -> Delivery:
        """Delete every part of a message that was sent."""
        return self._call(lambda: self._gateway.delete(of, **options))

    def cancel(self, of: str | Delivery, reason: str) -> Delivery:
        """Take back an intent of which nothing was sent. Raises `NotPossible` where something may have been."""
        return self._call(lambda: self._gateway.cancel(of, reason))

    def wait(self, delivery: Delivery, timeout_s: float | None = None) -> Delivery:
        """A newer snapshot: once the intent has ended or come to rest, or as it is after `timeout_s`."""
        return self._call(lambda: delivery.wait(timeout_s))


async def _got(what: Awaitable[T]) -> T:
    return await what


async def _cancel_all() -> None:
    """Cancel what is left of a gateway that could not close in order, then let the loop end."""
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=1.0)
    loop.call_soon(loop.stop)


def open(
    path: str | os.PathLike[str],
    channels: Sequence[Channel] = (),
    *,
    durability: Durable = "required",
    lock_wait_s: float = APPEND_WAIT_MS / 1000,
) -> SyncGateway:
    """A synchronous gateway over the ledger at `path`. The arguments and the errors are those of `msgledger.open`."""
    return SyncGateway(Gateway(path, channels, durability=durability, lock_wait_s=lock_wait_s))


def reading(path: str | os.PathLike[str]) -> SyncReading:
    """The ledger at `path`, opened so that nothing can be written. The errors are those of `msgledger.reading`."""
    return SyncReading(Reading(path))
