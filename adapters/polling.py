"""Long polling: asks a platform for what is new, hands it over, and lets it forget only what is done.

A poll is a read and may be repeated, unlike a send: it has connections of its own, so that it never stands in a send's
way. Where asking is acknowledging, nothing is asked for beyond what is done, and what is known already is not handed
over again; elsewhere it reads ahead, up to a bound. It survives whatever the platform does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from ..ledger.limits import (
    ERROR_TEXT_MAX_CHARS,
    POLL_IDLE_S,
    POLL_PAUSE_S,
    POLL_REFUSED_S,
    POLL_WAIT_S,
    RETRY_AFTER_MAX_MS,
)
from ..ledger.outcome import FailureClass, Rejected, Unknown
from ..ledger.store.clock import Clock, HostClock
from .exchange import Answer, Fault, Request
from .handover import Handover, Told, backoff_s
from .receiving import Intake, Polled, Polls, ReadsOn

Ask = Callable[[Request, float], Awaitable[Answer | Fault]]
"""Sends one request, whose answer may take so many seconds and a little more."""
PASSING: Final = (FailureClass.TRANSIENT, FailureClass.RATE_LIMIT, FailureClass.CONFLICT, FailureClass.UNKNOWN)
"""What goes away by itself; anything else waits for a person."""
AGAIN_S: Final = 1.0


class Polling:
    """One account. `run` until cancelled."""

    def __init__(
        self,
        adapter: Polls,
        ask: Ask,
        intake: Intake,
        *,
        name: str,
        clock: Clock | None = None,
        chance: random.Random | None = None,
        ready: Callable[[], bool] = lambda: True,
        wait_s: float = POLL_WAIT_S,
    ) -> None:
        self._adapter = adapter
        self._ask = ask
        self._clock = clock = clock or HostClock()
        self._chance = chance = chance or random.Random()
        self._ready = ready
        self._wait_s = wait_s
        self._arrivals = Handover(intake, name=name, clock=clock, chance=chance)
        self._told = Told(f"channel {name} polls")
        self._asked: str | None = None
        self._known: dict[str, int] = {}
        """The cursors of what was handed over and may come again, where asking is acknowledging."""
        self._ended: str | None = None
        """The end of the last page that had one: the same one again is the same page."""
        self._idle_since = 0

    async def run(self) -> None:
        async with self._arrivals:
            await self._begin()
            while True:
                await self._arrivals.room()
                polled = await self._polled()
                if self._adapter.poll_acknowledges:
                    await self._what_is_new(polled)
                else:
                    await self._all(polled)

    async def _begin(self) -> None:
        """Which cursor is ours depends on the credential, which a channel may have to ask for first."""
        while not self._ready():
            await self._pause(AGAIN_S)
        self._asked = await self._arrivals.began()
        self._idle_since = self._clock.boot_ms()

    async def _polled(self) -> Polled:
        """What came. It asks again for as long as it takes."""
        failures = 0
        while True:
            found = await self._one_poll()
            if isinstance(found, Polled):
                self._told.well()
                return found
            failures += 1
            wait_s = backoff_s(failures, self._chance.random())
            if isinstance(found, Rejected):
                refused = _named(found.failure.value, found.code, found.status)
                self._told.trouble(refused, found.detail[:ERROR_TEXT_MAX_CHARS])
                if found.failure not in PASSING:
                    wait_s = POLL_REFUSED_S
                elif found.retry_after_s is not None:
                    wait_s = max(wait_s, min(found.retry_after_s, RETRY_AFTER_MAX_MS / 1000))
            else:
                self._told.trouble(_named(found.cause.value, None, found.status))
            await self._pause(wait_s)
            if self._arrivals.cursor is None and not self._known:
                await self._begin()

    async def _one_poll(self) -> Polled | Rejected | Unknown:
        """One poll, with the further requests that its adapter needs to read it. What is broken off is asked anew."""
        found: Polled | Rejected | Unknown | Request = self._adapter.poll(self._asked, self._wait_s)
        answers: list[Answer] = []
        while isinstance(found, Request):
            answer = await self._ask(found, self._wait_s)
            if isinstance(answer, Fault):
                return answer.outcome()
            answers.append(answer)
            found = self._read(answers)
        return found

    def _read(self, answers: list[Answer]) -> Polled | Rejected | Unknown | Request:
        try:
            if len(answers) > 1 and isinstance(self._adapter, ReadsOn):
                return self._adapter.parse_more(self._asked, answers)
            return self._adapter.parse_poll(self._asked, answers[-1])
        except Exception as error:
            detail = f"{type(error).__name__} while reading the answer"
            return Unknown("malformed_answer", detail[:ERROR_TEXT_MAX_CHARS], status=answers[-1].status)

    async def _what_is_new(self, polled: Polled) -> None:
        """Everything from the watermark on comes each time. What is not known is handed over."""
        came = {one.cursor for one in polled.arrivals}
        # What is done and does not come any more is forgotten there, and here.
        known = self._known.items()
        self._known = {cursor: token for cursor, token in known if cursor in came or self._arrivals.is_open(token)}
        self._arrivals.passed.clear()
        for arrival in polled.arrivals:
            if arrival.cursor is None:
                await self._arrivals.take(arrival)
            elif arrival.cursor not in self._known:
                self._known[arrival.cursor] = await self._arrivals.take(arrival)
        if polled.cursor is not None and polled.cursor != self._ended:
            self._ended = polled.cursor
            self._arrivals.end(polled.cursor)
        if polled.arrivals and self._arrivals.cursor in (None, self._asked):
            await self._clock.wait(self._arrivals.passed, POLL_PAUSE_S)
        self._asked = self._arrivals.cursor or self._asked

    async def _all(self, polled: Polled) -> None:
        for arrival in polled.arrivals:
            await self._arrivals.take(arrival)
        ahead = polled.cursor or next((one.cursor for one in reversed(polled.arrivals) if one.cursor), None)
        if ahead is None:
            return
        now = self._clock.boot_ms()
        idle = not polled.arrivals and self._asked is not None
        if ahead != self._asked and (not idle or now - self._idle_since >= POLL_IDLE_S * 1000):
            self._arrivals.end(ahead)
            self._idle_since = now
        self._asked = ahead

    async def _pause(self, seconds: float) -> None:
        await self._clock.wait(asyncio.Event(), seconds)


def _named(what: str, code: str | None, status: int | None) -> str:
    """What there was in place of events, in one line; of an answer that was not understood, nothing of its body."""
    return " ".join(str(one) for one in ("nothing comes:", what, code, status) if one is not None)
