"""The floors: the same bytes, in as many commits, into a plain table without a second index.

`measure`: by one thread that does nothing else. No ledger that is durable before and after each request can be faster
for one sender. `across`: by a thread for an event loop that never waits for the disk itself, those that wait together
sharing a commit. What lies between the two is the price of the threads; no ledger of that kind can be faster.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from pathlib import Path

from msgledger.ledger.store.connection import connect, use_wal

from .drive import WARM_UP, Round, at, drive
from .grouped import Grouped
from .ours import Written

TABLE = "CREATE TABLE events (id INTEGER PRIMARY KEY, stream TEXT, topic TEXT, body BLOB) STRICT"
INSERT = "INSERT INTO events (stream, topic, body) VALUES (?, ?, ?)"


def measure(folder: Path, samples: Sequence[Written], seconds: float) -> Round:
    """Two commits a message, one message after the other."""
    path = folder / "floor.db"
    path.touch()
    connection = connect(path, wait_ms=5_000).connection
    use_wal(connection, path, 5_000)
    connection.execute(TABLE)
    cursor = connection.cursor()
    commits = [
        tuple([(one.stream, topic, body) for topic, body in bodies] for bodies in (one.owed, one.settled))
        for one in samples
    ]
    latencies: list[float] = []
    turns = itertools.cycle(commits)

    def message() -> None:
        for rows in next(turns):
            cursor.execute("BEGIN IMMEDIATE")
            cursor.executemany(INSERT, rows)
            cursor.execute("COMMIT")

    for _ in range(WARM_UP):
        message()
    cpu, began = time.process_time(), time.perf_counter()
    before = began
    while before < began + seconds:
        message()
        after = time.perf_counter()
        latencies.append(after - before)
        before = after
    cpu = time.process_time() - cpu
    connection.close()
    sent = len(latencies)
    return Round(
        rate=sent / (before - began),
        p50_ms=at(0.5, latencies) * 1000,
        p99_ms=at(0.99, latencies) * 1000,
        cpu_us=cpu / sent * 1e6,
        lag_p99_ms=0.0,
        lag_max_ms=0.0,
        messages=sent + WARM_UP,
    )


def across(folder: Path, samples: Sequence[Written], senders: int, seconds: float) -> Round:
    """The same for senders in an event loop, through a thread."""
    commits = [
        [[(INSERT, (one.stream, *body)) for body in part] for part in (one.owed, one.settled)] for one in samples
    ]
    turns = itertools.cycle(commits)

    async def work() -> Round:
        with Grouped(folder / "across.db", [TABLE]) as thread:

            async def send(conversation: str, text: str) -> bool:
                for statements in next(turns):
                    await thread.write(statements)
                return True

            return await drive(send, senders, seconds)

    return asyncio.run(work())
