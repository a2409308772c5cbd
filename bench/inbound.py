"""What comes in: recorded and acknowledged a second, finding a known session among many, and reading a conversation.

The floor writes the same bytes in as many commits, as for sending. The history is held against reading the rows of the
same events one after the other by the table's own index, which nobody who reads them can beat by much.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgledger
from msgledger import CallableChannel, Incoming, Message, SessionPolicy, SessionSource, Target
from msgledger.ledger import inbound_events as i
from msgledger.ledger.message import Body
from msgledger.ledger.source import session_key, shown_key
from msgledger.ledger.store.append import NEW, Append
from msgledger.ledger.store.clock import HostClock, new_id
from msgledger.ledger.store.store import Store
from msgledger.lifecycle.inbound.route import Router
from msgledger.projections import VIEWS

from .drive import Round, Send, drive
from .ours import CHANNEL, Written, written_as
from .sizes import Sizes

ROUTES = 300
"""How many messages are routed for each figure."""
GROUP = 256


class Found(NamedTuple):
    """Figures of what comes in."""

    rounds: dict[int, list[Round]]
    """Recorded and acknowledged, by how many at once."""
    floors: list[Round]
    routing_us: dict[int, list[float]]
    """Medians of finding a known session, by how many there are."""
    history_ms: list[float]
    rows_ms: list[float]
    """Reading the rows of the same events."""
    entries: int


def channel() -> CallableChannel:
    """Reads events of (number, conversation, text), and answers at once."""
    ids = itertools.count(1)

    async def deliver(unit: Any, context: Any) -> str:
        return f"{next(ids):010d}"

    def normalize(event: Any) -> Incoming:
        chat = event["chat"]
        message = Message(
            Target.group(CHANNEL, chat), Body(event["text"]), direction="inbound", id=str(event["n"]), sender="ann"
        )
        return Incoming(message=message, source=source_of(chat))

    return CallableChannel(CHANNEL, deliver, normalize=normalize, dedupe_key=lambda event: str(event["n"]))


def source_of(chat: str) -> SessionSource:
    return SessionSource(CHANNEL, "group", chat=chat, sender="ann")


def receiver(gateway: msgledger.Gateway) -> Send:
    numbers = itertools.count(1)

    async def receive(conversation: str, text: str) -> bool:
        event = {"n": next(numbers), "chat": conversation, "text": text}
        taken = await gateway.receive(event, channel=CHANNEL)
        await taken.done
        return not taken.repeated

    return receive


def measure(folder: Path, senders: int, seconds: float) -> tuple[Round, list[Written]]:
    """Recorded and acknowledged by so many at once, over a fresh ledger; and what it wrote."""
    path = folder / "ledger.db"

    async def work() -> Round:
        async with msgledger.open(path, channels=[channel()]) as gateway:
            return await drive(receiver(gateway), senders, seconds)

    found = asyncio.run(work())
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return found, list(itertools.islice(written_as(connection, ["InboundRecorded", "Acknowledged"]), 64))
    finally:
        connection.close()


def routing(folder: Path, sessions: int) -> float:
    """Microseconds to find the session of a message among so many, the median of `ROUTES`."""
    path = folder / f"sessions-{sessions}.db"
    chance = random.Random(5)
    with Store.open(path, VIEWS, wall_ms=wall_ms) as store:
        for first in range(0, sessions, GROUP // 2):
            store.append_sync(*_spoken(store, range(first, min(sessions, first + GROUP // 2))))
        router = Router(store, SessionPolicy(), by="bench", clock=HostClock(), chance=chance, environment={})
        took: list[float] = []

        async def work() -> None:
            for _ in range(ROUTES):
                source = source_of(f"chat-{chance.randrange(sessions)}")
                began = time.perf_counter()
                route = await router.route(source)
                took.append(time.perf_counter() - began)
                assert route.appends == (), "the session is not known"

        asyncio.run(work())
    return statistics.median(took) * 1e6


def _spoken(store: Store, numbers: Sequence[int]) -> list[Append]:
    """Sessions, each with one message that came in."""
    items: list[Append] = []
    names = store.pseudonyms
    for number in numbers:
        source, at = source_of(f"chat-{number}"), wall_ms()
        key = session_key(source)
        digest, target = names.session(key), Target.group(CHANNEL, f"chat-{number}")
        opened = i.SessionOpened(
            at=at,
            by="bench",
            key=digest,
            session_id=f"20260301_000000_{number:08x}",
            shown=shown_key(source, names),
            channel=CHANNEL,
            kind="group",
            content=i.SessionContent(key=key, source=source),
        )
        message = Message(target, Body("hello"), direction="inbound", id="1", sender="ann")
        recorded = i.InboundRecorded(
            at=at,
            by="bench",
            event_key=names.event(CHANNEL, "default", str(number)),
            channel=CHANNEL,
            account="default",
            lane=names.lane("default", target),
            place=names.place(target),
            session=digest,
            addressed=False,
            content=i.InboundContent(key=str(number), message=message, source=source),
        )
        items += [Append(new_id(at), (opened,), expected=NEW), Append(new_id(at), (recorded,), expected=NEW)]
    return items


def history(folder: Path, entries: int, reads: int) -> tuple[list[float], list[float]]:
    """Milliseconds to read that many entries of a conversation that is longer, and to read the rows of their events."""
    path = folder / "history.db"

    async def work() -> tuple[list[float], list[float]]:
        async def answer(inbound: msgledger.Inbound) -> None:
            await inbound.reply(f"re: {inbound.message.text}")

        async with msgledger.open(path, channels=[channel()], on_message=answer) as gateway:
            receive = receiver(gateway)
            for number in range(entries):
                await receive("room", f"message {number}")
            while len(await gateway.history(session_key(source_of("room")), limit=1000)) < entries:
                await asyncio.sleep(0.05)
            took: list[float] = []
            rows: list[float] = []
            for _ in range(reads):
                began = time.perf_counter()
                found = await gateway.history(session_key(source_of("room")), limit=entries)
                took.append((time.perf_counter() - began) * 1000)
                assert len(found) == entries
                streams = [one.intent or one.inbound for one in found]
                rows.append(_read_rows(path, [stream for stream in streams if stream is not None]))
            return took, rows

    return asyncio.run(work())


def _read_rows(path: Path, streams: Sequence[str]) -> float:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        cursor = connection.cursor()
        began = time.perf_counter()
        for stream in streams:
            cursor.execute(
                "SELECT topic, state FROM stored_events WHERE originator_id = ? ORDER BY originator_version", (stream,)
            ).fetchall()
        return (time.perf_counter() - began) * 1000
    finally:
        connection.close()


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def run(folder: Path, sizes: Sizes, floor: Any) -> Found:
    """All of it, the rounds in turns."""
    rounds: dict[int, list[Round]] = {senders: [] for senders in (min(sizes.senders), max(sizes.senders))}
    floors: list[Round] = []
    for number in range(sizes.rounds):
        written: list[Written] = []
        for senders in sorted(rounds, reverse=number % 2 == 1):
            at = folder / f"inbound-{number}-{senders}"
            at.mkdir()
            found, written = measure(at, senders, sizes.slice_s)
            rounds[senders].append(found)
        at = folder / f"inbound-floor-{number}"
        at.mkdir()
        floors.append(floor(at, written, sizes.slice_s))
    routed: dict[int, list[float]] = {}
    for sessions in sizes.sessions:
        at = folder / f"routing-{sessions}"
        at.mkdir()
        routed[sessions] = [routing(at, sessions)]
    took, rows = history(folder, sizes.entries, sizes.opens)
    return Found(rounds, floors, routed, took, rows, sizes.entries)
