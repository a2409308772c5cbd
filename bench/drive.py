"""Senders that send one message after the other for a while, and what they saw. The same for every ledger."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from .sizes import texts

WARM_UP = 3
"""Messages of each sender that are sent before the clock starts."""
TICK_S = 0.002
"""How often the event loop is asked whether it still answers. Its timers round up to the next millisecond."""

Send = Callable[[str, str], Awaitable[bool]]
"""Sends a text to a conversation, and says whether it was sent when it came back."""


class Round(NamedTuple):
    """One measurement."""

    rate: float
    """Messages a second."""
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """CPU of the whole process for each message, in microseconds."""
    lag_p99_ms: float
    lag_max_ms: float
    messages: int
    """All that were handed over, also those of the warm-up."""
    astray: int = 0
    """How many of them were anything but sent when `send` came back."""


def at(share: float, values: Sequence[float]) -> float:
    """The value below which a share of them lies; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


async def drive(send: Send, senders: int, seconds: float) -> Round:
    """Each sender has a conversation of its own and waits for its message before it sends the next."""
    bodies = texts()
    latencies: list[float] = []
    lags: list[float] = []
    astray = 0

    async def warm_up(sender: int) -> None:
        nonlocal astray
        for number in range(WARM_UP):
            astray += not await send(f"room-{sender}", bodies[(sender + number) % len(bodies)])

    async def sender(number: int, until: float) -> None:
        nonlocal astray
        began = time.perf_counter()
        turn = number
        while began < until:
            astray += not await send(f"room-{number}", bodies[turn % len(bodies)])
            ended = time.perf_counter()
            latencies.append(ended - began)
            began = ended
            turn += 1

    await asyncio.gather(*(warm_up(number) for number in range(senders)))
    gc.collect()
    ticker = asyncio.create_task(_tick(lags))
    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.gather(*(sender(number, began + seconds) for number in range(senders)))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    ticker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await ticker
    sent = len(latencies)
    return Round(
        rate=sent / took,
        p50_ms=at(0.5, latencies) * 1000,
        p99_ms=at(0.99, latencies) * 1000,
        cpu_us=cpu / sent * 1e6,
        lag_p99_ms=at(0.99, lags) * 1000,
        lag_max_ms=max(lags, default=0.0) * 1000,
        messages=sent + senders * WARM_UP,
        astray=astray,
    )


async def _tick(lags: list[float]) -> None:
    """How much later than asked the loop comes back."""
    while True:
        began = time.perf_counter()
        await asyncio.sleep(TICK_S)
        lags.append(max(0.0, time.perf_counter() - began - TICK_S))
