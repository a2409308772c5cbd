"""Effects: functions that are called once a receipt or a commit is durable, on live and on recovered sends alike.

Each is a subscriber with a tracked position: it is called at least once for every event, in order, also over a crash;
a failing one is tried again and never causes a resend. Its position begins where the ledger stood when its name was
first heard of.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from ..ledger.codec import Opaque
from ..ledger.errors import StoreClosed, StoreUnavailable
from ..ledger.events import Event, IntentCommitted, OutcomeReconciled, UnitAccepted
from ..ledger.limits import EFFECT_PAGE_EVENTS
from ..ledger.store.history import Recorded, head_position, page, tracked
from ..ledger.store.store import Store

log = logging.getLogger("msgledger")

AGAIN_S = 1.0
"""How long a failing effect waits before it is tried again."""
When = Literal["sent", "commit"]
TOPICS: dict[When, tuple[str, ...]] = {
    "sent": (UnitAccepted.__name__, OutcomeReconciled.__name__),
    "commit": (IntentCommitted.__name__,),
}
"""A receipt comes from the platform's answer, or from a look-up that found the unit."""


class Effect(msgspec.Struct, frozen=True):
    """What an effect is handed: the intent, the durable event, and where it stands in the ledger."""

    intent: str
    event: Event
    position: int
    recorded_at: int


Fn = Callable[[Effect], Awaitable[None] | None]


class Subscriber:
    """One effect. `name` is its identity over restarts."""

    def __init__(self, store: Store, name: str, when: When, fn: Fn) -> None:
        self._store = store
        self.name = f"effect:{when}:{name}"
        self._topics = TOPICS[when]
        self._fn = fn
        self._news = asyncio.Event()
        self._news.set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """From the tracked position, or from here on where there is none."""
        position = await self._store.read(tracked, self.name)
        if position is None:
            position = await self._store.read(head_position)
            await self._store.track(self.name, position)
        self._task = asyncio.get_running_loop().create_task(self._run(position), name=self.name)

    def notice(self) -> None:
        """Something was committed."""
        self._news.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, position: int) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                while found := await self._store.read(page, position, EFFECT_PAGE_EVENTS, self._topics):
                    for one in found:
                        await self._call(one)
                        position = one.position
                    await self._store.track(self.name, position)
            except StoreClosed:
                return
            except StoreUnavailable as error:
                log.warning("%s waits for the ledger: %s", self.name, error)
                self._news.set()
                await asyncio.sleep(AGAIN_S)

    async def _call(self, one: Recorded) -> None:
        if isinstance(one.event, Opaque) or (isinstance(one.event, OutcomeReconciled) and one.event.verdict != "sent"):
            return
        while True:
            try:
                result = self._fn(Effect(one.stream, one.event, one.position, one.recorded_at))
                if inspect.isawaitable(result):
                    await result
                return
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                    raise
                log.exception("%s failed at position %d and will be tried again", self.name, one.position)
                await asyncio.sleep(AGAIN_S)


def _is_cancelled() -> bool:
    """Whether we are to stop. Else what was cancelled is something that the effect waited for: it has failed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
