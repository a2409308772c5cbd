"""Whether memory stays flat: what the process holds on the way through many messages.

Measured from /proc as resident size after a collection, so on Linux only. The page cache of SQLite and the bounded
caches of the ledger fill at first; what still grows after that would be a leak.
"""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path

import msgledger

from .ours import instant, on_disk, sender
from .sizes import texts

STEPS = 10
PAGE_KIB = 4


def report(folder: Path, senders: int, messages: int) -> str:
    """A line for each tenth of the way."""
    path = folder / "ledger.db"
    lines = [f"{messages:,} messages of {senders} senders, each in a conversation of its own"]
    lines.append(f"{'messages':>12}{'resident MiB':>14}{'msg/s':>9}{'log MiB':>9}")

    async def work() -> None:
        async with msgledger.open(path, channels=[instant()]) as gateway:
            send, bodies = sender(gateway), texts()
            done = 0

            async def some(number: int, count: int) -> None:
                for turn in range(count):
                    await send(f"room-{number}", bodies[(number + turn) % len(bodies)])

            for step in range(1, STEPS + 1):
                left = messages * step // STEPS - done
                began = time.perf_counter()
                shares = [left // senders + (number < left % senders) for number in range(senders)]
                await asyncio.gather(*(some(number, share) for number, share in enumerate(shares)))
                took = time.perf_counter() - began
                done += left
                gc.collect()
                log = path.with_name(f"{path.name}-wal").stat().st_size / 2**20
                lines.append(f"{done:>12,}{resident_mib():>14.1f}{left / took:>9.0f}{log:>9.1f}")

    asyncio.run(work())
    lines.append(f"{on_disk(path) / messages:,.0f} bytes on disk a message")
    return "\n".join(lines)


def resident_mib() -> float:
    """The pages that the process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_KIB / 1024
