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
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from .adapters.surface import Channel
from .ledger.dossier import Dossier
from .ledger.errors import NotPossible
from .ledger.limits import APPEND_WAIT_MS, PAGE_ROWS
from .ledger.message import Message, Target
from .lifecycle.gateway import Gateway
from .lifecycle.plan import Durable
from .lifecycle.send import Delivery
from .projections.intents import Row

T = TypeVar("T")


class SyncGateway:
    """Made by `open`; use it with `with`. Its methods may be called from several threads."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # ---- life

    def __enter__(self) -> Self:
        if self._loop is not None:
            raise NotPossible("the gateway is open already")
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="msgledger sync", daemon=True)
        self._loop, self._thread = loop, thread
        thread.start()
        try:
            self._call(self._gateway.start)
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
            self._call(self._gateway.close)
        finally:
            self._end()

    # ---- sending

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

    # ---- reading

    def intent(self, id: str) -> Dossier:
        """One intent with its content. Raises `NoSuchIntent`."""
        return self._call(lambda: self._gateway.intent(id))

    def intents(self, *, limit: int = PAGE_ROWS, target: Target | None = None, **filters: str) -> list[Row]:
        """Rows of the view, newest first; see `Gateway.intents`."""
        return self._call(lambda: self._gateway.intents(limit=limit, target=target, **filters))

    def owed(self, limit: int = PAGE_ROWS) -> list[Row]:
        """What is not at its end, oldest first."""
        return self._call(lambda: self._gateway.owed(limit))

    def by_platform_id(self, channel: str, platform_id: str) -> list[str]:
        """The intents that made, changed or deleted the message with that id, newest first."""
        return self._call(lambda: self._gateway.by_platform_id(channel, platform_id))

    # ---- the thread

    def _call(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run it on the loop and wait. A caller that is interrupted takes its waiting away, not the work."""
        loop = self._loop
        if loop is None:
            raise NotPossible("the gateway is not open: use it with `with msgledger.sync.open(...)`")
        if self._thread is threading.current_thread():
            raise NotPossible("a channel or an effect may not call the synchronous gateway: it would wait for itself")
        future = asyncio.run_coroutine_threadsafe(begin(), loop)
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
