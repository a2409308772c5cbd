"""Long polling: ask, hand over what came, and move the cursor once it is done.

A poll shows nothing and may be repeated, so a failed one is asked again after a while. The cursor never passes an event
that is not done as its policy asks; where asking on tells the platform so, nothing is asked for beyond it. Whatever the
platform and the ledger do, an event is handed over until it is taken.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ..ledger.errors import LedgerError, StoreUnavailable
from ..ledger.limits import POLL_BACKOFF_MAX_S, POLL_BACKOFF_S, POLL_UNFINISHED_MAX, POLL_WAIT_S
from ..ledger.outcome import FailureClass, NotDispatched, Rejected, Unknown
from ..ledger.watermark import Watermark
from .exchange import Answer, Fault, Request
from .receiving import Arrival, Event, Intake, Polled, Polls

log = logging.getLogger("msgledger")

AGAIN_S: Final = 1.0
"""How long to wait before events that are known and not done are asked for again."""
REFUSED_S: Final = 60.0
"""How long to wait after a refusal that only a changed credential or right can mend."""

Ask = Callable[[Request, float], Awaitable[Answer | Fault]]
"""Sends one request, within so many seconds."""
Sleep = Callable[[float], Awaitable[None]]


class Polling:
    """One account of one platform. `run` goes on until it is cancelled."""

    def __init__(
        self,
        name: str,
        adapter: Polls,
        dedupe_key: Callable[[Event], str],
        ask: Ask,
        intake: Intake,
        *,
        wait_s: float = POLL_WAIT_S,
        chance: random.Random | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._name = name
        self._adapter = adapter
        self._dedupe_key = dedupe_key
        self._ask = ask
        self._intake = intake
        self._wait_s = wait_s
        self._chance = chance if chance is not None else random.Random()
        self._sleep = sleep
        self._mark = Watermark()
        self._advanced: str | None = None
        self._known: dict[object, None] = {}
        """What was handed over and may come again, by what the platform repeats of it."""
        self._open: dict[int, object] = {}
        """The same by its token, until it is behind the mark."""
        self._passed: list[object] = []
        """What is behind the mark since the last poll was asked, whose answer may still hold it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._failures = 0
        self._trouble: str | None = None

    async def run(self) -> None:
        try:
            self._mark.reached = self._advanced = await self._until_taken(self._intake.cursor)
            ahead = self._advanced
            while True:
                passed, self._passed = self._passed, []
                polled = await self._poll(self._mark.reached if self._adapter.poll_acknowledges else ahead)
                if polled is None:
                    self._passed += passed
                    continue
                news = await self._take(polled)
                for known in passed:
                    self._known.pop(known, None)
                await self._advance()
                ahead = polled.cursor or ahead
                if self._adapter.poll_acknowledges and polled.arrivals and not news:
                    await self._some_news(AGAIN_S)
                while len(self._mark) >= POLL_UNFINISHED_MAX:
                    await self._some_news(AGAIN_S)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- asking

    async def _poll(self, cursor: str | None) -> Polled | None:
        """What came, or None after a wait that follows a failure."""
        answer = await self._while_finishing(self._ask(self._adapter.poll(cursor, self._wait_s), self._wait_s))
        try:
            said = answer.outcome() if isinstance(answer, Fault) else self._adapter.parse_poll(cursor, answer)
        except Exception as error:
            said = Unknown("malformed_answer", f"{type(error).__name__} while reading what a poll brought")
        if isinstance(said, Polled):
            self._tell(None)
            self._failures = 0
            return said
        await self._while_finishing(self._sleep(self._pause_s(said)))
        return None

    def _pause_s(self, said: Rejected | Unknown | NotDispatched) -> float:
        if isinstance(said, Rejected) and said.retry_after_s is not None:
            self._tell(f"{said.failure.value}: {said.detail}")
            return said.retry_after_s
        if isinstance(said, Rejected) and said.failure in (FailureClass.AUTH, FailureClass.PERMISSION):
            self._tell(f"{said.failure.value}: {said.detail}")
            return REFUSED_S
        self._failures += 1
        kind = said.failure.value if isinstance(said, Rejected) else said.cause.value
        self._tell(f"{kind}: {said.detail}")
        ceiling = min(POLL_BACKOFF_MAX_S, POLL_BACKOFF_S * 2 ** min(self._failures - 1, 16))
        return ceiling * self._chance.random()

    def _tell(self, trouble: str | None) -> None:
        """One line for each change."""
        kind = None if trouble is None else trouble.partition(":")[0]
        if kind == self._trouble:
            return
        self._trouble = kind
        if trouble is None:
            log.info("%s is received from again", self._name)
        else:
            log.warning("%s cannot be received from: %s", self._name, trouble)

    async def _while_finishing(self, work: Awaitable[Any]) -> Any:
        """Wait for it, and move the cursor meanwhile: what is done is told the platform with the next poll."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                news = asyncio.ensure_future(self._news.wait())
                await asyncio.wait((task, news), return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                if self._news.is_set():
                    self._news.clear()
                    await self._advance()
            return task.result()
        finally:
            task.cancel()

    async def _some_news(self, at_most_s: float) -> None:
        try:
            async with asyncio.timeout(at_most_s):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()
        await self._advance()

    # ---- handing over

    async def _take(self, polled: Polled) -> bool:
        """Hand over what is not known yet, in order. Whether there was anything."""
        news = False
        for arrival in polled.arrivals:
            known = self._identity(arrival)
            if known in self._known:
                continue
            news = True
            self._known[known] = None
            token = self._mark.arrive(arrival.cursor)
            self._open[token] = known
            taken = await self._until_taken(lambda event=arrival.event: self._intake.take(event))
            if taken.reached:
                self._finished(token)
                continue
            task = asyncio.get_running_loop().create_task(self._follow(arrival.event, taken.done, token))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if polled.cursor is not None:
            self._finished(self._mark.arrive(polled.cursor))
        return news

    async def _follow(self, event: Event, done: Awaitable[None], token: int) -> None:
        """Wait for the policy's point; where it is refused, the event is handed over again, as a platform would."""
        while True:
            try:
                await done
                break
            except LedgerError:
                await self._sleep(AGAIN_S)
                done = (await self._until_taken(lambda: self._intake.take(event))).done
        self._finished(token)

    def _finished(self, token: int) -> None:
        passed = self._mark.finish(token)
        if passed:
            self._passed += [self._open.pop(one) for one in passed if one in self._open]
            self._news.set()

    def _identity(self, arrival: Arrival) -> object:
        """What the platform repeats of it; of what it cannot be said, the event itself."""
        try:
            return self._dedupe_key(arrival.event)
        except (ValueError, TypeError, KeyError, AttributeError):
            return repr(arrival.event)

    async def _advance(self) -> None:
        reached = self._mark.reached
        if reached is not None and reached != self._advanced:
            await self._until_taken(lambda: self._intake.advance(reached))
            self._advanced = reached

    async def _until_taken(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """A ledger that cannot be used now is asked again: the event stays in hand, and nothing more is polled for."""
        pause_s = POLL_BACKOFF_S
        while True:
            try:
                return await work()
            except StoreUnavailable as error:
                log.warning("%s waits for the ledger: %s", self._name, error)
                await self._sleep(pause_s * self._chance.uniform(0.5, 1.0))
                pause_s = min(POLL_BACKOFF_MAX_S, pause_s * 2)
