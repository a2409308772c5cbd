"""What the tests of the Matrix channel share: channels, messages, what came of them, and the room's own word on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from msgledger.adapters.http import HttpChannel
from msgledger.adapters.matrix import MatrixAdapter, MatrixChannel
from msgledger.adapters.matrix_origin import TAG
from msgledger.adapters.receiving import Event
from msgledger.adapters.surface import Channel, RenderContext
from msgledger.ledger.message import Format, Message, RenderedUnit, Target
from msgledger.ledger.outcome import Accepted, FailureClass, Outcome, Proof, Rejected, Verdict

from ..counterparts.proxy import Fate, Proxy, Rule
from ..counterparts.synapse import Login, Room
from .contract import Bench, Seen, context, deliver, opened, sent

T = TypeVar("T")
ROOM = Target.group("matrix", "!ops/room:example.org")
"""A room that is nowhere."""
READS = Rule(Fate.LOSE_REQUEST, method="GET", path="/messages|/event/", nth=None)
"""Nothing can be looked up."""


def channel_of(login: Login, url: str, device_id: str | None = None) -> MatrixChannel:
    return MatrixChannel(url, user_id=login.user_id, token=login.token, device_id=device_id)


def bot_of(room: Room) -> MatrixChannel:
    return channel_of(room.bot, room.server.url)


def place(room: Room, thread: str | None = None) -> Target:
    return Target.group("matrix", room.id, thread=thread)


def send(channel: Channel, room: Room, text: str, **more: object) -> Outcome:
    (outcome,) = sent(channel, Message.text(text, to=place(room)), **more)
    return outcome


def change(channel: Channel, room: Room, action: str, of: str | None, text: str = "", **more: Any) -> Outcome:
    """One edit or one redaction, as the lifecycle asks for it."""
    told = context(place(room), action=action, of_platform_id=of, **more)
    return opened(channel, lambda it: deliver(it, edit_of(text) if action == "edit" else RenderedUnit(0), told))


def edit_of(text: str, format: Format = "plain") -> RenderedUnit:
    """The one unit of an edit."""
    told = RenderContext(at=1, intent="i", action="edit")
    (unit,) = offline().render(Message.text(text, to=ROOM, format=format), told).units
    return unit


def offline(token: str = "t", homeserver: str = "https://example.org") -> MatrixChannel:
    """One that speaks to nobody."""
    return MatrixChannel(homeserver, user_id="@bot:example.org", token=token, device_id="BOT")


def untagged(content: dict[str, Any]) -> dict[str, Any]:
    """The content without the tag that every message of ours has, which must be there."""
    rest = {name: value for name, value in content.items() if name != TAG}
    assert len(rest) < len(content)
    new = rest.get("m.new_content")
    return rest if new is None else rest | {"m.new_content": untagged(new)}


def looked_up(channel: MatrixChannel, room: Room, unit: RenderedUnit | None = None, **more: Any) -> Verdict:
    told = context(place(room, more.pop("thread", None)), **more)
    return opened(channel, lambda _: channel.reconcile(unit or RenderedUnit(0, text="any"), told))


def altered(room: Room, **methods: Callable[..., Any]) -> HttpChannel:
    """A channel whose adapter does some things otherwise, as where something on the way changes a request."""
    kind = type("Altered", (MatrixAdapter,), methods)
    login = room.bot
    return HttpChannel(
        kind(
            room.server.url,
            user_id=login.user_id,
            token=login.token,
            device_id=login.device_id,
            name="matrix",
            account=None,
        )
    )


async def is_ready(channel: Channel) -> None:
    assert channel.ready


async def until_ready(channel: Channel) -> None:
    async with asyncio.timeout(20):
        while not channel.ready:
            await asyncio.sleep(0.02)


def event_id(outcome: Outcome) -> str:
    assert isinstance(outcome, Accepted), f"{outcome!r} {getattr(outcome, 'code', '')}"
    assert outcome.platform_id is not None
    return outcome.platform_id


def refused(outcome: Outcome, failure: FailureClass, status: int, code: str) -> Rejected:
    assert isinstance(outcome, Rejected), repr(outcome)
    assert (outcome.failure, outcome.status, outcome.code) == (failure, status, code)
    assert outcome.proof is Proof.REJECTED
    return outcome


def spend(channel: Channel, room: Room, most: int = 20) -> Rejected:
    """Sends until the homeserver says that it is too much."""
    for _ in range(most):
        outcome = send(channel, room, "within")
        if isinstance(outcome, Rejected):
            return refused(outcome, FailureClass.RATE_LIMIT, 429, "M_LIMIT_EXCEEDED")
        event_id(outcome)
    pytest.fail(f"{most} messages in a row were not too much")


def shown(room: Room) -> list[Seen]:
    """What people see: each message as the homeserver says that it reads now, without edits and what was redacted."""
    seen: list[Seen] = []
    for event in room.messages():
        content = event["content"]
        relation = content.get("m.relates_to", {})
        if not content or relation.get("rel_type") == "m.replace":
            continue
        latest = event.get("unsigned", {}).get("m.relations", {}).get("m.replace")
        text = content["body"] if latest is None else latest["content"]["m.new_content"]["body"]
        thread = relation["event_id"] if relation.get("rel_type") == "m.thread" else None
        seen.append(Seen(event["event_id"], text, thread, relation.get("m.in_reply_to", {}).get("event_id")))
    return seen


class MatrixBench(Bench):
    def __init__(self, room: Room, proxy: Proxy) -> None:
        self.room, self.proxy, self.secret = room, proxy, room.bot.token

    def channel(self) -> Channel:
        return channel_of(self.room.bot, self.proxy.url)

    def target(self, thread: str | None = None) -> Target:
        return place(self.room, thread)

    def visible(self, target: Target) -> list[Seen]:
        return shown(self.room)

    def events(self, target: Target) -> list[Event]:
        return self.room.messages()

    def lose_next_answer(self) -> None:
        self.proxy.set(Rule(Fate.LOSE_ANSWER))
