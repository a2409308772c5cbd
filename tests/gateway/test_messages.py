"""Messages, targets and relations: stored whole, sent the same way, and the same again after a restart."""

from __future__ import annotations

import msgspec
import pytest
from msgledger import (
    Attachment,
    Body,
    Broadcast,
    Followup,
    InvalidMessage,
    Message,
    Origin,
    Reply,
    Status,
    System,
    SystemReason,
    Target,
)
from msgledger.ledger.message import Relation

from .kit import Bench, text, to

RELATIONS: list[Relation] = [
    Reply(inbound="in-1", reply_to="quoted-77", thread="thread-9", quote="what they said"),
    Followup(session="agent:main:plat:group:4711", previous="m0"),
    Broadcast(reason="maintenance"),
    *(System(reason) for reason in SystemReason),
]
WHOLE = Message(
    target=Target("thread", "plat", "room-4711", "space-1", "parent-1", "thread-9", "The Room", "native-1"),
    body=Body("body text", "markdown"),
    attachments=(Attachment("plan.pdf", "file", "https://files.example/plan.pdf", "application/pdf", 12, "d"),),
    relation=RELATIONS[0],
    origin=Origin("gateway", "gateway_failure", "missing_api_key", "drop_bot_room_echo"),
    account="default",
    id="message-1",
    sender="person-1",
    timestamp=1,
    raw={"nested": [1, None, "x"]},
)


def test_a_message_survives_encoding(bench: Bench) -> None:
    """MSG-1: equal after JSON, with every field set and with none."""
    for message in (WHOLE, text("short")):
        assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_there_are_two_directions(bench: Bench) -> None:
    """MSG-2: another one is refused, and what is inbound cannot be sent."""
    with pytest.raises(msgspec.ValidationError, match="direction"):
        msgspec.json.decode(
            msgspec.json.encode(WHOLE)
            .replace(b'"direction":"outbound"', b'"direction":"up"')
            .replace(b'{"target"', b'{"direction":"up","target"'),
            type=Message,
        )

    async def main() -> None:
        async with bench.gateway() as gateway:
            with pytest.raises(InvalidMessage, match="inbound"):
                await gateway.send(Message(target=to(), body=Body("echo"), direction="inbound"))
            assert bench.types_of_intents() == []

    bench.run(main())


def test_everything_that_a_resend_needs_is_in_the_intent(bench: Bench) -> None:
    """TGT-1, GAP-9, REC-4, OB-20, REL-1: target, thread, reply-to, account, format, attachments and origin."""

    async def main() -> None:
        bench.platform.ready = False
        channel = bench.platform.channel(account="default", attachments="remote_url", threads=True)
        async with bench.gateway(channel) as gateway:
            delivery = await gateway.send(WHOLE, wait=False, hooks=("no-shouting",))
        bench.platform.ready = True
        async with bench.gateway(channel) as gateway:
            await bench.clock.advance(1)
            kept = await gateway.intent(delivery.intent)
            assert kept.message == WHOLE
            assert kept.state.status is Status.SENT
        assert bench.last(delivery.intent, "IntentRecorded")["hooks"] == ["no-shouting"]
        first, second = bench.platform.requests
        assert first.context.target == WHOLE.target == second.context.target
        assert (first.context.reply_to, second.context.reply_to) == ("quoted-77", None)
        assert (first.unit.text, first.unit.format) == ("body text", "markdown")
        assert second.unit.media == WHOLE.attachments[0]

    bench.run(main())


def test_the_account_of_the_intent_is_used_not_todays(bench: Bench) -> None:
    """REC-4: with a second account configured since, the recovered send stays with its own."""

    async def main() -> None:
        bench.platform.ready = False
        async with bench.gateway(bench.platform.channel(account="one")) as gateway:
            delivery = await gateway.send(text("for account one"), wait=False)
        other = bench.other("plat")
        both = bench.platform.channel(account="one"), other.channel(account="two")
        bench.platform.ready = True
        async with bench.gateway(*both) as gateway:
            await bench.clock.advance(1)
            assert (await gateway.intent(delivery.intent)).state.account == "one"
        assert (bench.platform.texts, other.texts) == (["for account one"], [])

    bench.run(main())


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda one: str(msgspec.to_builtins(one)["kind"]))
def test_every_relation_goes_one_way_and_survives_a_restart(bench: Bench, relation: Relation) -> None:
    """REL-1, REL-2, REL-3, REL-4, REL-5: the same `send`, the same events, and the same relation afterwards."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            at_once = await gateway.send(text("at once", relation=relation))
            bench.platform.ready = False
            later = await gateway.send(text("later", relation=relation), wait=False)
        bench.platform.ready = True
        async with bench.gateway() as gateway:
            await bench.clock.advance(1)
            message = (await gateway.intent(later.intent)).message
            assert message is not None and message.relation == relation
        steps = ["IntentRecorded", "AttemptStarted", "UnitAccepted", "IntentCommitted"]
        assert bench.types(at_once.intent) == bench.types(later.intent) == steps
        assert len({one.reply_to for one in bench.platform.visible}) == 1
        kind = str(msgspec.to_builtins(relation)["kind"])
        assert bench.last(later.intent, "IntentRecorded")["relation"] == kind

    bench.run(main())


def test_the_reasons_of_a_system_message_are_a_closed_list() -> None:
    """REL-4: any other reason is refused."""
    reasons = "approval task hook cron subagent message_tool cli control_ui automation error"
    assert " ".join(SystemReason) == reasons
    with pytest.raises(ValueError, match="heartbeat"):
        SystemReason("heartbeat")
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"kind":"system","reason":"heartbeat"}', type=System)
