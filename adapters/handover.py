"""From a driver to the core: every arrival handed over in order, once, and kept until its point is durable.

What the ledger cannot take is offered again, with growing waits, and nothing that stands behind it is offered before
it; the cursor follows what is done, and never runs ahead of it. It decides nothing, and it drops nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from ..ledger.errors import Conflict, StoreUnavailable, WriteUncertain
from ..ledger.limits import POLL_BACKOFF_MAX_S, POLL_BACKOFF_S, POLL_UNFINISHED_MAX
from ..ledger.store.clock import Clock
from ..ledger.watermark import Watermark
from .receiving import Arrival, Intake, Taken

log = logging.getLogger("msgledger")


def backoff_s(failures: int, chance: float) -> float:
    """Full jitter below a ceiling that grows with the failures in a row. `chance` is in [0, 1)."""
    return min(POLL_BACKOFF_MAX_S, POLL_BACKOFF_S * 2 ** min(max(failures - 1, 0), 16)) * chance


class Told:
    """What is said in the log of something that lasts: one line when it changes, however often it is met."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._trouble: str | None = None

    def trouble(self, why: str, detail: str = "") -> None:
        """`detail` is said along, and another one alone is no change."""
        if why != self._trouble:
            self._trouble = why
            log.warning("%s: %s%s", self._what, why, f" ({detail})" if detail else "")

    def well(self) -> None:
        if self._trouble is not None:
            self._trouble = None
            log.info("%s: well again", self._what)


class Handover:
    """Of one channel while it receives: `async with`. `done(arrival)` is called when it may be acknowledged."""

    def __init__(
        self,
        intake: Intake,
        *,
        name: str,
        clock: Clock,
        chance: random.Random,
        most: int = POLL_UNFINISHED_MAX,
        done: Callable[[Arrival], None] | None = None,
    ) -> None:
        self._intake = intake
        self._clock = clock
        self._chance = chance
        self._most = most
        self._done = done
        self._mark = Watermark()
        self._open: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._moved = asyncio.Event()
        self._one_less = asyncio.Event()
        self.passed = asyncio.Event()
        """Set whenever the watermark moves; whoever waits for the next time clears it first."""
        self._ledger = Told(f"channel {name} and the ledger")
        self._turns = Told(f"channel {name} and what it handed over")
        self._hint = Told(f"channel {name} and its cursor")

    async def __aenter__(self) -> Self:
        self._spawn(self._keep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Whatever is not done stays unacknowledged: it comes again."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def cursor(self) -> str | None:
        """Everything before it is done; None where nothing with a cursor is."""
        return self._mark.reached

    def is_open(self, token: int) -> bool:
        """Whether what `take` gave that token is not done yet."""
        return token in self._open

    async def began(self) -> str | None:
        """Where it stands in the ledger."""
        tries = 0
        while True:
            try:
                cursor = await self._intake.cursor()
            except (StoreUnavailable, Conflict) as error:
                tries = await self._unavailable(error, tries)
            else:
                self._ledger.well()
                return cursor

    async def room(self) -> None:
        """Until one more may be unfinished."""
        while len(self._mark) >= self._most:
            self._turns.trouble(f"{self._most} arrivals are not done: nothing more is fetched until one is")
            self._one_less.clear()
            await self._clock.wait(self._one_less, POLL_BACKOFF_MAX_S)
        self._turns.well()

    async def take(self, arrival: Arrival) -> int:
        """Returns once it is durable, with its token. While the ledger cannot be written it waits, and
        what comes later stays behind it."""
        await self.room()
        token = self._mark.arrive(arrival.cursor)
        self._open.add(token)
        taken, tries = None, 0
        while taken is None:
            try:
                taken = await self._intake.take(arrival.event)
            except (StoreUnavailable, WriteUncertain, Conflict) as error:
                tries = await self._unavailable(error, tries)
            except Exception as error:
                # Its own fault, not the ledger's: the others go on, and it is offered again beside them.
                log.error("an arrival cannot be recorded, it is tried again: %s", type(error).__name__)
                break
        else:
            self._ledger.well()
        if taken is not None and taken.reached:
            self._finished(arrival, token)
        else:
            self._spawn(self._follow(arrival, token, taken))
        return token

    def end(self, cursor: str) -> None:
        """The end of a page: the watermark once all of it is done."""
        self._pass(self._mark.arrive(cursor))

    def _pass(self, token: int) -> None:
        if self._mark.finish(token):
            self._moved.set()
            self.passed.set()

    async def _follow(self, arrival: Arrival, token: int, taken: Taken | None) -> None:
        tries = 0
        while taken is None or not await self._acknowledged(taken):
            tries += 1
            await self._pause(tries)
            try:
                taken = await self._intake.take(arrival.event)
            except Exception as error:
                taken = None
                log.debug("an arrival cannot be recorded: %s", type(error).__name__)
        self._finished(arrival, token)

    def _finished(self, arrival: Arrival, token: int) -> None:
        if self._done is not None:
            self._done(arrival)
        self._open.discard(token)
        self._pass(token)
        self._one_less.set()

    async def _acknowledged(self, taken: Taken) -> bool:
        """Whether the policy's point was reached; where it was refused, it is handed over again."""
        try:
            await taken.done
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return False
        except Exception as error:
            log.warning("inbound %s is offered again: %s", taken.inbound, type(error).__name__)
            return False
        return True

    async def _keep(self) -> None:
        """Record the cursor as soon as it moves; what moves meanwhile is recorded together."""
        kept, tries = None, 0
        while True:
            await self._moved.wait()
            self._moved.clear()
            while (cursor := self._mark.reached) is not None and cursor != kept:
                try:
                    await self._intake.advance(cursor)
                except (StoreUnavailable, WriteUncertain, Conflict) as error:
                    tries = await self._unavailable(error, tries)
                except Exception as error:
                    # A cursor is a hint: without it more comes again after a restart, and is known.
                    self._hint.trouble(f"not recorded ({type(error).__name__})")
                    tries += 1
                    await self._pause(tries)
                else:
                    kept, tries = cursor, 0
                    self._ledger.well()
                    self._hint.well()

    async def _unavailable(self, error: Exception, tries: int) -> int:
        self._ledger.trouble(f"not written ({type(error).__name__}); nothing is acknowledged meanwhile")
        await self._pause(tries + 1)
        return tries + 1

    async def _pause(self, tries: int) -> None:
        await self._clock.wait(asyncio.Event(), backoff_s(tries, self._chance.random()))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
