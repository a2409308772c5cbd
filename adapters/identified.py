"""Channels that are ready once the platform has said whose credential they have.

The adapter says how to ask and what an answer means. Until it is ready this asks again, with growing waits: a platform
that is down costs no attempt, and a channel whose deduplication belongs to a device never guesses which one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import chain, repeat
from typing import Final, Protocol, runtime_checkable

from ..ledger.errors import InvalidConfig
from .exchange import Answer, Fault, Request
from .http import Adapter, HttpChannel

ASK_DEADLINE_S: Final = 3.0
ASK_AGAIN_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
"""The waits between two questions to a platform that does not answer; the last repeats."""

log = logging.getLogger("msgledger")


class Identifies(Adapter, Protocol):
    """An adapter that learns whose credential it has."""

    @property
    def ready(self) -> bool: ...
    def whoami(self) -> Request: ...
    def learn(self, answer: Answer) -> None:
        """Takes in an answer to `whoami`; raises `InvalidConfig` where the credential is somebody else's."""
        ...


@runtime_checkable
class Limited(Protocol):
    """An adapter that can also ask how much the platform takes: each of `limits` in turn, until an answer says it."""

    @property
    def limits(self) -> Sequence[Request]: ...
    def learn_limit(self, answer: Answer) -> bool: ...


class IdentifiedChannel(HttpChannel):
    """`open()` asks once and raises `InvalidConfig` where the credential is somebody else's; where no answer comes the
    channel asks again until it is ready or until `close()`. `pause` waits in between.
    """

    def __init__(self, adapter: Identifies, *, pause: Callable[[float], Awaitable[None]] | None = None) -> None:
        super().__init__(adapter)
        self._identity = adapter
        self._pause = pause or asyncio.sleep
        self._asking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await super().open()
        if self._asking is not None or self.ready:
            return
        try:
            await self._ask()
        except InvalidConfig:
            await self.close()
            raise
        if not self.ready:
            log.warning("channel %s/%s: no answer from %s yet", self.name, self.account, self._identity.base_url)
            self._asking = asyncio.create_task(self._keep_asking())

    async def close(self) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
        await super().close()

    async def _ask(self) -> None:
        answer = await self._answer(self._identity.whoami())
        if isinstance(answer, Answer):
            self._identity.learn(answer)
        if self.ready and isinstance(self._identity, Limited):
            for request in self._identity.limits:
                answer = await self._answer(request)
                if not isinstance(answer, Answer) or self._identity.learn_limit(answer):
                    return  # unheard of, a limit shows when a file is refused for it

    async def _answer(self, request: Request) -> Answer | Fault:
        return await self._driver.send(request, self._identity.authorize(request), deadline_s=ASK_DEADLINE_S)

    async def _keep_asking(self) -> None:
        for wait_s in chain(ASK_AGAIN_S, repeat(ASK_AGAIN_S[-1])):
            await self._pause(wait_s)
            try:
                await self._ask()
            except InvalidConfig as error:
                log.error("channel %s/%s stays down: %s", self.name, self.account, error)
                return
            if self.ready:
                return
