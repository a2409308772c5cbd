"""A WebSocket reader: connects, hands over what comes, and says the platform's word once an event may be acknowledged.

It decides nothing about events and keeps none: what was not acknowledged when a socket broke is delivered again, and is
known. It reads no faster than the core takes, and a socket that breaks is opened again after a while.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ..ledger.errors import InvalidConfig
from ..ledger.limits import (
    POLL_REFUSED_S,
    RETRY_AFTER_MAX_MS,
    SOCKET_CLOSE_S,
    SOCKET_FRAME_MAX_BYTES,
    SOCKET_OPEN_S,
    SOCKET_PING_S,
)
from ..ledger.store.clock import Clock, HostClock
from ..version import __version__
from .exchange import Answer, Request, retry_after_s
from .handover import Handover, Told, backoff_s
from .receiving import Arrival, Intake, Streams

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection, connect

AGAIN_S: Final = 1.0
REFUSED: Final = (401, 403, 404)
"""What only a person can mend."""


class Streaming:
    """One account. `run` until cancelled."""

    def __init__(
        self,
        adapter: Streams,
        base_url: str,
        authorize: Callable[[Request], Mapping[str, str]],
        intake: Intake,
        *,
        name: str,
        clock: Clock | None = None,
        chance: random.Random | None = None,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._adapter = adapter
        self._base_url = "ws" + base_url.rstrip("/").removeprefix("http")
        self._authorize = authorize
        self._clock = clock = clock or HostClock()
        self._chance = chance = chance or random.Random()
        self._ready = ready
        self._arrivals = Handover(intake, name=name, clock=clock, chance=chance, done=self._done)
        self._told = Told(f"channel {name} listens")
        self._words: asyncio.Queue[str] = asyncio.Queue()
        """What is to be said on the socket that is open: no more than there are arrivals."""
        self._began: str | None = None
        self._failures = 0

    async def run(self) -> None:
        """Raises `InvalidConfig` where the library is missing."""
        async with self._arrivals:
            while not self._ready():
                await self._pause(AGAIN_S)
            self._began = await self._arrivals.began()
            while True:
                self._failures += 1
                await self._pause(await self._listened())

    async def _listened(self) -> float:
        """One socket until it breaks; how long to wait before the next."""
        from websockets.exceptions import InvalidStatus

        try:
            await self._listen()
        except InvalidConfig:
            raise
        except InvalidStatus as error:
            status = error.response.status_code
            self._told.trouble(f"refused with {status}")
            if status in REFUSED:
                return POLL_REFUSED_S
            headers = {name.lower(): value for name, value in error.response.headers.raw_items()}
            asked = retry_after_s(Answer(status, headers)) or 0.0
            return max(self._backoff(), min(asked, RETRY_AFTER_MAX_MS / 1000))
        except Exception as error:
            self._told.trouble(f"the socket broke ({type(error).__name__})")
        return self._backoff()

    async def _listen(self) -> None:
        cursor = self._arrivals.cursor or self._began
        request = self._adapter.connect(cursor)
        async with _connected(
            self._base_url + request.target, {**dict(request.headers), **self._authorize(request)}
        ) as socket:
            self._words = asyncio.Queue()
            speaking = asyncio.create_task(self._speak(socket))
            try:
                for word in self._adapter.opened(cursor):
                    self._words.put_nowait(word)
                while True:
                    raw = await socket.recv()
                    frame = self._adapter.frame(raw if isinstance(raw, str) else raw.decode())
                    self._told.well()
                    self._failures = 0
                    for word in frame.send:
                        self._words.put_nowait(word)
                    for arrival in frame.arrivals:
                        await self._arrivals.take(arrival)
            finally:
                speaking.cancel()
                await asyncio.gather(speaking, return_exceptions=True)

    async def _speak(self, socket: ClientConnection) -> None:
        """A socket that takes no word is closed, so that reading ends too."""
        try:
            while True:
                await socket.send(await self._words.get())
        except Exception:
            await socket.close()

    def _done(self, arrival: Arrival) -> None:
        """On whatever socket is open by now; where none is, the event comes again and is known."""
        word = self._adapter.acknowledge(arrival)
        if word is not None:
            self._words.put_nowait(word)

    def _backoff(self) -> float:
        return backoff_s(max(self._failures, 1), self._chance.random())

    async def _pause(self, seconds: float) -> None:
        await self._clock.wait(asyncio.Event(), seconds)


def _connected(url: str, headers: dict[str, str]) -> connect:
    """No proxy from anywhere, no compression, no redirect: the credential goes where it is meant to go."""
    from websockets.asyncio.client import connect

    class Direct(connect):
        def process_redirect(self, exc: Exception) -> Exception | str:
            return exc

    return Direct(
        url,
        additional_headers=headers,
        user_agent_header=f"msgledger/{__version__}",
        compression=None,
        proxy=None,
        open_timeout=SOCKET_OPEN_S,
        close_timeout=SOCKET_CLOSE_S,
        ping_interval=SOCKET_PING_S,
        ping_timeout=SOCKET_PING_S,
        max_size=SOCKET_FRAME_MAX_BYTES,
        max_queue=4,
    )


def check_installed(name: str) -> None:
    """Raises `InvalidConfig` where the library of the extra is missing."""
    try:
        import websockets  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise InvalidConfig(
            f"channel {name!r} has a socket and websockets is missing: install msgledger[ws]"
        ) from error
