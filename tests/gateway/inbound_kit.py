"""What the tests of the receiving half share: events of a platform in memory, and a channel that reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgledger import Message, Target
from msgledger.adapters.receiving import Event, Ignored, Incoming
from msgledger.ledger.message import Body
from msgledger.ledger.source import SessionSource

from .kit import Bench

Handle = Callable[[Any], Awaitable[None]]


def update(number: int, text: str = "hello there", chat: str = "room-4711", **more: Any) -> dict[str, Any]:
    """An event as the platform sends it."""
    return {"update": number, "chat": chat, "text": text, "from": "person-ann", **more}


def normalize(event: Event) -> Incoming | Ignored:
    if "text" not in event:
        return Ignored("a reaction")
    chat, kind = event["chat"], event.get("kind", "group")
    target = Target("direct" if kind == "dm" else "group", "plat", chat, thread=event.get("thread"))
    message = Message(
        target,
        Body(event["text"]),
        direction="inbound",
        id=f"in-{event['update']}",
        sender=event["from"],
        timestamp=event.get("at"),
    )
    source = SessionSource(
        "plat", kind, chat=chat, thread=event.get("thread"), sender=event["from"], is_bot=event.get("bot", False)
    )
    return Incoming(message=message, source=source, own=event.get("own", False), addressed=event.get("addressed", True))


def dedupe_key(event: Event) -> str:
    return str(event["update"])


def channel(bench: Bench, **more: Any) -> Any:
    return bench.platform.channel(normalize=normalize, dedupe_key=dedupe_key, **more)


class Agent:
    """A handler that answers `re: <text>`, and keeps what it was given."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, int]] = []
        self.fails: list[BaseException] = []
        """What the next runs raise, before they answer."""
        self.gate: asyncio.Event | None = None
        self.begun = asyncio.Event()

    @property
    def texts(self) -> list[str]:
        return [text for text, _ in self.runs]

    async def __call__(self, inbound: Any) -> None:
        self.runs.append((inbound.message.text, inbound.attempt))
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            raise self.fails.pop(0)
        await inbound.reply(f"re: {inbound.message.text}")


def turns(bench: Bench) -> dict[str, list[str]]:
    """The types of the events of each inbound message, by its platform id."""
    found: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for event in bench.events():
        if event.type in ("InboundRecorded", "InboundDropped") and event.stream not in names:
            names[event.stream] = event.data.get("message_id") or event.stream
        if event.stream in names:
            found.setdefault(names[event.stream], []).append(event.type)
    return found


DONE = ["InboundRecorded", "Acknowledged", "InboundDispatched", "InboundCompleted"]


async def soon(bench: Bench, done: Callable[[], object]) -> None:
    """Until that, while turns are under way: time goes by in small steps."""
    bench.clock.free = True
    try:
        async with asyncio.timeout(20):
            while not done():
                await bench.clock.advance(0.2)
    finally:
        bench.clock.free = False
