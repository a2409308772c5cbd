"""What a message needs of a channel so that a durable delivery shows the same as the gateway's own would.

A channel that does not bring all of it along is no substitute: the payload is then the gateway's own to deliver, and
what is missing is named. Nothing is left out in silence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from ...adapters import calls
from ...adapters.surface import Channel, RenderContext, is_external
from ...ledger.codec import to_json
from ...ledger.errors import InvalidMessage
from ...ledger.message import Message, RenderedBatch, Reply, Target


def needs(message: Message, *, extra: Collection[str] = (), hooks: Collection[str] = ()) -> tuple[str, ...]:
    """In words that `Capabilities.carries` and the fields beside it use. `extra`: what only the gateway knows of."""
    found = set(extra)
    relation = message.relation
    if isinstance(relation, Reply):
        found |= {"reply_to"} if relation.reply_to is not None else set()
        found |= {"quote"} if relation.quote is not None else set()
    if message.target.thread is not None or (isinstance(relation, Reply) and relation.thread is not None):
        found.add("threads")
    if message.attachments:
        found.add("upload" if any(file.is_file for file in message.attachments) else "attachments")
    if hooks:
        found.add("hooks")
    return tuple(sorted(found))


def missing(channel: Channel, needed: Iterable[str]) -> tuple[str, ...]:
    """Those that the channel does not declare."""
    able = channel.capabilities
    has = {*able.carries}
    has |= {"threads"} if able.threads else set()
    has |= {"attachments"} if able.attachments != "none" else set()
    has |= {"attachments", "upload"} if able.attachments == "upload" else set()
    return tuple(need for need in needed if need not in has)


class BridgeCheck(msgspec.Struct, frozen=True):
    """One point to look at before a bridged path is made durable."""

    name: str
    met: bool
    why: str


def bridge_checks(channel: Channel, target: Target | None = None) -> tuple[BridgeCheck, ...]:
    """Which points of the list a channel meets; nothing is sent. `target`: one that the channel can render for.

    What only a person can compare, the look of a message on the platform, is not among them.
    """
    calls.check(channel)
    able = channel.capabilities
    sends = not is_external(channel)
    where = target if target is not None else Target.group(channel.name, "bridge-check")
    whole, plan = _payloads(channel, where), _plan(channel, where)
    return (
        BridgeCheck(
            "same_render_and_transport",
            sends,
            "live and recovered sends use this channel's own render and deliver"
            if sends
            else "its gateway sends by itself: give the function that sends to a CallableChannel",
        ),
        BridgeCheck(
            "effects_kept",
            sends,
            "`gateway.on_sent` is called for live and recovered receipts alike"
            if sends
            else "what follows a send is known to the gateway alone, and is lost with its process",
        ),
        BridgeCheck(
            "all_ids",
            able.receipt == "required",
            "an acceptance without an id is an unknown outcome"
            if able.receipt == "required"
            else "the platform gives no ids: nothing can be edited, deleted or looked up by one",
        ),
        BridgeCheck(
            "prepared_converted",
            sends,
            "a prepared dispatcher may use `turn.send`" if sends else "a prepared dispatcher stays the gateway's own",
        ),
        BridgeCheck("all_payloads", whole is None, whole or "every payload of an array becomes units of one intent"),
        BridgeCheck("replayable_plan", plan is None, plan or "the plan is rendered once, stored, and sent as stored"),
    )


def _payloads(channel: Channel, target: Target) -> str | None:
    """What goes wrong with a text that is longer than one unit: it has to come out whole, or be refused."""
    words = [f"word{number:06}" for number in range(channel.capabilities.text.max // 5)]
    try:
        batch = _render(channel, " ".join(words), target)
    except InvalidMessage:
        return None  # refused before anything is recorded: the gateway's own delivery takes it
    shown = " ".join(unit.text or "" for unit in batch.units).split()
    return None if shown == words else f"a long text comes out as {len(shown)} of {len(words)} words"


def _plan(channel: Channel, target: Target) -> str | None:
    batch = _render(channel, "A text for the check.", target)
    again = _render(channel, "A text for the check.", target)
    if batch != again:
        return "the same message renders differently each time: use the time and chance of the context only"
    try:
        read = msgspec.json.decode(to_json(batch), type=RenderedBatch)
    except TypeError as error:
        return f"the plan cannot be written as JSON: {error}"
    return None if read == batch else "the plan reads back from JSON as another: use JSON values in payloads"


def _render(channel: Channel, text: str, target: Target) -> RenderedBatch:
    return channel.render(Message.text(text, to=target), RenderContext(at=0, intent="bridge-check"))
