"""A gateway as it was before: payloads, its own bot, and the callback that it delivers with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgledger import Message, NoSend, Reply, Target

from .kit import Bench, to

Payload = dict[str, Any]


class Own:
    """The gateway's own send. What it made visible stands in `shown`, apart from the platform of the bench."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.shown: list[str] = []
        self.before: list[int] = []
        """How many requests of ours the platform had seen at each call."""
        self.answer: Any = None
        """Returned instead of an id, raised where it is an error."""

    async def deliver(self, payload: Payload) -> Any:
        self.before.append(len(self.bench.platform.requests))
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, NoSend):
            return self.answer
        self.shown.append(payload["text"])
        return self.answer if self.answer is not None else f"own{len(self.shown)}"


def message_of(payload: Payload) -> Message | list[Message] | NoSend | None:
    """The gateway's projection: what a payload shows."""
    if payload.get("typing"):
        return None
    if payload.get("mute"):
        return NoSend("the room is muted")
    target: Target = payload.get("to", to())
    more: dict[str, Any] = {} if "reply" not in payload else {"relation": payload["reply"]}
    more |= {name: payload[name] for name in ("attachments", "origin") if name in payload}
    texts = payload["text"]
    if isinstance(texts, list):
        return [Message.text(text, to=target, **more) for text in texts]
    return Message.text(texts, to=target, **more)


async def until(true: Callable[[], object]) -> None:
    """Returns once it is so; fails where it never comes to that."""
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.001)


REPLY = Reply(reply_to="m-4711")


def nothing_recorded(bench: Bench) -> bool:
    return bench.types_of_intents() == []
