"""Virtual time for whole gateways: it stands still until a test lets it go on, and then it runs as fast as it can.

Time moves only while every gateway of the test waits and nothing is on its way to the store or to a platform, so what
a test sees does not depend on how busy the machine is. The wall clock may jump, the boot clock never does.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

START_WALL_MS = 1_800_000_000_000
REAL_PATIENCE_S = 30.0
"""How long a test may wait for the machine before it is said to hang."""
YIELDS = 4
"""How often the loop turns before it counts as idle."""


class VirtualClock:
    """See `ledger.store.clock.Clock`. `advance` is the only thing that moves it."""

    def __init__(self) -> None:
        self.boot_id = "boot-1"
        self.free = False
        """Time goes on although attempts are in flight: for what happens beside a stuck channel."""
        self.gateways: list[Any] = []
        self._boot = 5_000_000
        self._offset = START_WALL_MS - self._boot
        self._horizon = self._boot
        self._targets: dict[object, int] = {}
        self._outstanding = 0

    def wall_ms(self) -> int:
        return self._offset + self._boot

    def boot_ms(self) -> int:
        return self._boot

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self._offset += int(seconds * 1000)

    async def wait(self, event: asyncio.Event, timeout_s: float) -> None:
        me = object()
        self._targets[me] = self._boot + max(1, int(timeout_s * 1000))
        turns = 0
        try:
            while not event.is_set() and self._boot < self._targets[me]:
                if self._boot >= self._horizon or not (self.free or self.quiet()):
                    turns = 0
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.001):
                            await event.wait()
                elif turns < YIELDS:
                    turns += 1
                    await asyncio.sleep(0.001 if self.free else 0)
                else:
                    turns = 0
                    self._boot = min(self._horizon, *self._targets.values())
        finally:
            del self._targets[me]

    async def advance(self, seconds: float) -> None:
        """Let so much time go by, and everything happen that is due then."""
        self._horizon = self._boot + int(seconds * 1000)
        patience = time.monotonic() + REAL_PATIENCE_S
        while self._boot < self._horizon:
            assert time.monotonic() < patience, "time does not go on: something is stuck"
            if not self.gateways:
                self._boot = self._horizon
            await asyncio.sleep(0.0005)
        if not self.free:
            await self.settle()

    async def settle(self) -> None:
        """Until nothing happens any more without time going by."""
        patience = time.monotonic() + REAL_PATIENCE_S
        calm = 0
        while calm < YIELDS:
            assert time.monotonic() < patience, "the gateway does not come to rest"
            calm = calm + 1 if self.quiet() else 0
            await asyncio.sleep(0.0005)

    async def until(self, done: Callable[[], object], *, within_s: float, step_s: float = 1.0) -> None:
        """Let time go by until `done()`."""
        waited = 0.0
        await self.settle()
        while not done():
            assert waited < within_s, f"it did not come about within {within_s} virtual seconds"
            await self.advance(step_s)
            waited += step_s

    def quiet(self) -> bool:
        """Whether every gateway waits, and nothing is on its way."""
        waits = len(self._targets) >= len(self.gateways) and all(at > self._boot for at in self._targets.values())
        return (
            waits
            and self._outstanding == 0
            and not any(gateway.dispatcher.busy or gateway.dispatcher._wake.is_set() for gateway in self.gateways)
            and not any(gateway.turns.busy or gateway.turns.pending for gateway in self.gateways)
        )

    def watch(self, store: Any) -> None:
        """Count what is on its way to a store: while there is anything, time stands still."""
        for name in ("append", "read", "track"):
            setattr(store, name, self._counted(getattr(store, name)))

    def _counted(self, method: Callable[..., asyncio.Future[Any]]) -> Callable[..., asyncio.Future[Any]]:
        def call(*arguments: Any) -> asyncio.Future[Any]:
            future = method(*arguments)
            self._outstanding += 1
            future.add_done_callback(self._landed)
            return future

        return call

    def _landed(self, _: object) -> None:
        self._outstanding -= 1
