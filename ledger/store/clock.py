"""The host's clocks and names, the only place where they are read.

`boot_ms` counts suspended time and no correction, so durations on it cannot be shortened by anybody who sets the clock;
`wall_ms` is what people read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import time
import uuid
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """Time as the lifecycle sees it. Tests bring one of their own."""

    @property
    def boot_id(self) -> str:
        """The same for all processes since the host started, another one after that."""
        ...

    def wall_ms(self) -> int:
        """UTC milliseconds."""
        ...

    def boot_ms(self) -> int:
        """Milliseconds on a clock that never jumps and does not stop while the host sleeps."""
        ...

    async def wait(self, event: asyncio.Event, timeout_s: float) -> None:
        """Until the event is set, or for so long."""
        ...


class HostClock:
    """The real ones."""

    def __init__(self) -> None:
        self.boot_id = boot_id()
        self._boot_clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        return time.clock_gettime_ns(self._boot_clock) // 1_000_000

    async def wait(self, event: asyncio.Event, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await event.wait()


def boot_id() -> str:
    """Linux tells; elsewhere the start of the clock, to a second, does the same."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{socket.gethostname()}/{int(time.time() - time.monotonic())}"))


def host_name() -> str:
    return socket.gethostname()


_chance = random.Random()
"""Seeded by the system, in a forked child anew: two children of one process may open the ledger in one millisecond."""
os.register_at_fork(after_in_child=_chance.seed)


def new_id(wall_ms: int) -> str:
    """A UUIDv7 (RFC 9562): ordered by time, so that neighbours in time are neighbours on the page."""
    chance = _chance.getrandbits(74)
    value = (wall_ms & (1 << 48) - 1) << 80 | 0x7 << 76 | (chance >> 62) << 64 | 0b10 << 62 | chance & (1 << 62) - 1
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
