"""The ledger under measurement, through its public face, and what it wrote."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import apsw
import msgledger
from msgledger import CallableChannel, Message, RenderedUnit, SendContext, Target

from .drive import Round, Send, drive

CHANNEL = "bench"
SAMPLES = 64


def instant(*, ready: bool = True) -> CallableChannel:
    """A channel whose platform answers at once."""
    ids = itertools.count(1)

    async def deliver(unit: RenderedUnit, context: SendContext) -> str:
        return f"{next(ids):010d}"

    return CallableChannel(CHANNEL, deliver, ready=ready)


def sender(gateway: msgledger.Gateway) -> Send:
    async def send(conversation: str, text: str) -> bool:
        delivery = await gateway.send(Message.text(text, to=Target.group(CHANNEL, conversation)))
        return delivery.status is msgledger.Status.SENT

    return send


async def send_for(path: Path, senders: int, seconds: float) -> Round:
    async with msgledger.open(path, channels=[instant()]) as gateway:
        return await drive(sender(gateway), senders, seconds)


def measure(folder: Path, senders: int, seconds: float) -> tuple[Round, float]:
    """A round over a fresh ledger, and its bytes on disk for each message."""
    path = folder / "ledger.db"
    found = asyncio.run(send_for(path, senders, seconds))
    return found, on_disk(path) / found.messages


def on_disk(path: Path) -> int:
    """Bytes of a closed database: closing carries the log into the file."""
    return sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*") if part.suffix in {".db", ".db-wal"})


class Written(NamedTuple):
    """One message as the ledger wrote it: its stream, and the (topic, body) of its events in two commits."""

    stream: str
    owed: list[tuple[str, bytes]]
    """What was durable before the platform was asked."""
    settled: list[tuple[str, bytes]]


def samples(folder: Path) -> list[Written]:
    """Messages that were just written, read back from the file."""
    path = folder / "samples.db"
    asyncio.run(send_for(path, SAMPLES, 0.05))
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found = list(_written(connection))
    finally:
        connection.close()
    if not found:
        raise AssertionError("no message was written as two commits")
    return found


def _written(connection: apsw.Connection) -> Iterator[Written]:
    for one in written_as(connection, ["IntentRecorded", "AttemptStarted"]):
        if one.settled and one.settled[-1][0] == "IntentCommitted":
            yield one


def written_as(connection: apsw.Connection, first: list[str]) -> Iterator[Written]:
    """The streams that begin with these events, those in one commit and the rest in another."""
    rows = connection.execute("SELECT originator_id, topic, state FROM stored_events ORDER BY 1, originator_version")
    for stream, events in itertools.groupby(rows, key=lambda row: row[0]):
        bodies = [(topic, body) for _, topic, body in events]
        if [topic for topic, _ in bodies[: len(first)]] == first:
            yield Written(stream, bodies[: len(first)], bodies[len(first) :])
