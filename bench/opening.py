"""What a long history costs: rebuilding the views of it, and opening it while some messages are owed.

The history is made of real messages with names of their own, written into the table of events past the store; the
store then finds views that do not stand and makes them, as it does after an upgrade.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw
import msgledger
import msgspec
from msgledger.ledger.store.clock import new_id
from msgledger.ledger.store.schema import insert_events
from msgledger.ledger.store.store import Store
from msgledger.projections import VIEWS

from .ours import Written, instant

EVENTS_PER_COMMIT = 50_000
Row = tuple[int, str, int, str, bytes, int]


class History(NamedTuple):
    """A ledger that was made, and what making it took."""

    path: Path
    events: int
    write_s: float
    rebuild_s: float


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def build(folder: Path, events: int, owed: int, samples: Sequence[Written]) -> History:
    """A ledger of so many events; `owed` messages, evenly over its length, were recorded and never claimed."""
    path = folder / f"history-{events}.db"
    Store.open(path, (), wall_ms=wall_ms).close()
    began = time.perf_counter()
    connection = apsw.Connection(str(path))
    try:
        connection.execute("PRAGMA journal_mode = OFF")  # it is made anew where this dies
        connection.execute("PRAGMA synchronous = OFF")
        rows = history(events, owed, samples)
        cursor = connection.cursor()
        written = 0
        while written < events:
            with connection:
                cursor.executemany(insert_events(), _some(rows, min(EVENTS_PER_COMMIT, events - written)))
            written += EVENTS_PER_COMMIT
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    write_s = time.perf_counter() - began
    with Store.open(path, VIEWS, wall_ms=wall_ms) as store:
        built = store.built
    if built is None or built.held or built.events != events:
        raise AssertionError(f"the rebuild of {events} events gave {built}")
    return History(path, events, write_s, built.seconds)


def _some(rows: Iterator[Row], count: int) -> Iterator[Row]:
    for _ in range(count):
        yield next(rows)


def history(events: int, owed: int, samples: Sequence[Written]) -> Iterator[Row]:
    """Rows without end: messages that were sent, and every so often one of which only the record stands."""
    chance = random.Random(11)
    molds = [_names(sample) for sample in samples]
    every = max(1, events // 4 // owed)
    now = wall_ms()
    position = number = missing = 0
    while True:
        sample, names = molds[number % len(molds)]
        at = now - 3_600_000 + number // 100
        stream = new_id(at)
        fresh = (stream, *(f"{chance.getrandbits(128):032x}" for _ in names[1:]))
        bodies = (*sample.owed, *sample.settled)
        if missing < owed and number % every == 0:
            missing += 1
            bodies = bodies[:1]
        for version, (topic, body) in enumerate(bodies):
            if version == 0:
                for old, new in zip(names, fresh, strict=True):
                    body = body.replace(old.encode(), new.encode())
            position += 1
            yield position, stream, version, topic, body, at
        number += 1


def _names(sample: Written) -> tuple[Written, tuple[str, ...]]:
    """What names a message in its record: stream, key, lane and place."""
    record = msgspec.json.decode(sample.owed[0][1])
    return sample, (sample.stream, record["key"], record["lane"], record["place"])


def measure(path: Path, owed: int) -> float:
    """Milliseconds from nothing to a gateway that is open and has listed what it owes."""

    async def work() -> float:
        began = time.perf_counter()
        async with msgledger.open(path, channels=[instant(ready=False)]) as gateway:
            found = await gateway.owed()
            took = time.perf_counter() - began
        if len(found) != owed:
            raise AssertionError(f"{len(found)} messages are owed in {path.name}, not {owed}")
        return took * 1000

    return asyncio.run(work())
