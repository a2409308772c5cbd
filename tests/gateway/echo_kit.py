"""What the tests of the echo gate share: a room in memory that everybody in it hears, bots and people alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgledger import Accepted, CallableChannel, Message, RenderedUnit, Target
from msgledger.adapters.receiving import Event, Ignored, Incoming
from msgledger.adapters.surface import Capabilities, SendContext, TextLimit
from msgledger.ledger.message import Body
from msgledger.ledger.origin import Origin, decode
from msgledger.ledger.source import SessionSource

from .kit import Bench, TestGateway


class Room:
    """What is said in it reaches every bot but, unless `echoes`, the one that said it.

    `own`: whether the platform marks a bot's own messages; `labels`: whether it gives back what the bot called them.
    """

    def __init__(self, name: str = "room-4711", kind: str = "group", *, echoes: bool = False) -> None:
        self.name, self.kind, self.echoes = name, kind, echoes
        self.own = self.labels = False
        self.said: list[Event] = []
        self.bots: list[Bot] = []
        self.tags = True
        """Whether it carries metadata."""
        self.before_answer: Callable[[Event], Any] | None = None
        """Called with a bot's message, which everybody has seen and which the bot does not know the id of yet."""

    def say(self, text: str, who: str = "person-ann", *, bot: bool = False, **more: Any) -> Event:
        event = {"room": self.name, "kind": self.kind, "id": f"m{len(self.said) + 1}"}
        event |= {"text": text, "from": who, "bot": bot, **more}
        self.said.append(event)
        for one in self.bots:
            if one.name != who or self.echoes:
                one.hears.put_nowait(event)
        return event

    @property
    def texts(self) -> list[str]:
        return [event["text"] for event in self.said]

    def count(self, who: str) -> int:
        return sum(event["from"] == who for event in self.said)


class Bot:
    """One bot of a room: its channel, and what it has not heard yet."""

    def __init__(self, room: Room, name: str, **able: Any) -> None:
        self.room, self.name, self.able = room, name, able
        self.hears: asyncio.Queue[Event] = asyncio.Queue()
        room.bots.append(self)

    def channel(self, **more: Any) -> CallableChannel:
        if self.room.tags:
            more |= {"encode_origin": Origin.tag, "decode_origin": lambda event: decode(event.get("tag"))}
        able = Capabilities(
            text=TextLimit(60, chunking=True), origin="native" if self.room.tags else "registry", **self.able
        )
        return CallableChannel(
            "plat",
            self.deliver,
            account=self.name,
            capabilities=able,
            normalize=self.normalize,
            dedupe_key=lambda event: f"{event['room']}/{event['id']}/{event.get('again', 0)}",
            **more,
        )

    async def deliver(self, unit: RenderedUnit, told: SendContext) -> Any:
        tag = {"tag": told.origin.tag()} if self.room.tags else {}
        event = self.room.say(unit.text or "", self.name, bot=True, key=told.provider_key, **tag)
        if self.room.before_answer is not None:
            outcome = await self.room.before_answer(event)
            if outcome is not None:
                return outcome
        return Accepted(event["id"])

    def normalize(self, event: Event) -> Incoming | Ignored:
        sender = None if event["from"] is None else f"user-of-{event['from']}"
        message = Message(
            Target("direct" if event["kind"] == "dm" else "group", "plat", event["room"]),
            Body(event["text"]),
            direction="inbound",
            id=event["id"],
            sender=sender,
        )
        source = SessionSource("plat", event["kind"], chat=event["room"], sender=sender, is_bot=event["bot"])
        mine = event["from"] == self.name
        return Incoming(
            message=message,
            source=source,
            own=mine and self.room.own,
            addressed=event.get("addressed", True),
            label=event.get("key") if mine and self.room.labels else None,
        )

    async def hear(self, gateway: TestGateway) -> int:
        """Hand over what it has not heard; how many events that were."""
        count = 0
        while not self.hears.empty():
            await gateway.receive(self.hears.get_nowait(), channel="plat")
            count += 1
        return count


async def talk(bench: Bench, pairs: list[tuple[Bot, TestGateway]], *, rounds: int) -> int:
    """Let everybody hear and answer until nobody has anything to say, or for so many rounds; how many there were."""
    for done in range(rounds):
        if not sum([await bot.hear(gateway) for bot, gateway in pairs]):
            return done
        await bench.clock.settle()
    return rounds


def drops(bench: Bench) -> list[tuple[str, str | None]]:
    """(reason, note) of what was dropped, in order."""
    return [(one.data["reason"], one.data.get("note")) for one in bench.events() if one.type == "InboundDropped"]
