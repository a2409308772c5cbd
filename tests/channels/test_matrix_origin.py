"""The tag in the content of Matrix events: what it says, whose it is, and that a room of bots goes by it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgledger
import pytest
from msgledger import Message, Origin
from msgledger.adapters.matrix_origin import TAG, by_a_program
from msgledger.adapters.receiving import Incoming
from msgledger.ledger.message import Body, Target
from msgledger.ledger.source import SessionSource

from ..counterparts.synapse import Login, Room
from .contract import context, rendered, sent
from .matrix_kit import ROOM, bot_of, channel_of, edit_of, event_id, offline, place, shown

pytest_plugins = ("tests.counterparts.fixtures",)

FAILURE = Origin.gateway_failure("model_login_expired")
BOT = "@bot:example.org"


def built(origin: Origin, **more: Any) -> dict[str, Any]:
    unit = edit_of("hello") if more else rendered(offline(), Message.text("hello", to=ROOM))[0]
    return json.loads(offline().adapter.build(unit, context(ROOM, origin=origin, **more)).body)


def test_a_message_says_who_wrote_it_and_of_what_origin() -> None:
    """ADP-4, CH-5: under a key of our own, beside what people see."""
    assert built(FAILURE) == {"msgtype": "m.text", "body": "hello", TAG: {**(FAILURE.tag() or {}), "by": BOT}}
    assert built(Origin())[TAG] == {"by": BOT}


def test_an_edit_keeps_the_tag() -> None:
    """ORG-5: in the event, and in the new content that takes the place of the old."""
    content = built(FAILURE, action="edit", of_platform_id="$of")
    assert content[TAG] == content["m.new_content"][TAG] == {**(FAILURE.tag() or {}), "by": BOT}


@pytest.mark.parametrize(
    ("tag", "sender", "origin", "program"),
    [
        ({**(FAILURE.tag() or {}), "by": BOT}, BOT, FAILURE, True),
        ({"by": BOT}, BOT, None, True),
        ({**(FAILURE.tag() or {}), "by": BOT}, "@ann:example.org", "opaque", False),
        (FAILURE.tag(), BOT, "opaque", False),
        ({**(FAILURE.tag() or {}), "by": BOT, "version": 2}, BOT, "unread", True),
        ({"by": None}, None, None, False),
        ("text", BOT, None, False),
        (None, BOT, None, False),
    ],
)
def test_a_tag_speaks_for_its_own_event(tag: Any, sender: Any, origin: Any, program: bool) -> None:
    """ORG-4, ECHO-1: what a person forwards brings a bot's tag along; it is kept, and says nothing of the person."""
    event: dict[str, Any] = {"sender": sender, "content": {"body": "x", TAG: tag}}
    said: Any = offline().adapter
    found = said.decode_origin(event)
    if origin == "opaque":
        assert found == Origin(opaque=tag)
    elif origin == "unread":
        assert found is not None and found.opaque == {name: value for name, value in tag.items() if name != "by"}
    else:
        assert found == origin
    assert by_a_program(event) is program


@pytest.mark.parametrize("event", [{}, {"content": None}, {"content": []}, {"content": {}}])
def test_an_event_without_content_has_no_origin(event: dict[str, Any]) -> None:
    """ADP-4: redacted, or no message at all."""
    said: Any = offline().adapter
    assert said.decode_origin(event) is None
    assert not by_a_program(event)


@pytest.mark.synapse
class TestRoomOfBots:
    def test_a_tagged_failure_is_seen_and_left_alone(self, room: Room, tmp_path: Path) -> None:
        """TC-14, AC-14, ECHO-4, ORG-5: every event of it carries the tag; the second bot drops each, and
        an untagged one takes the usual way."""
        other = joined(room, "other-bot")
        handled: list[str] = []
        asked: list[str] = []

        async def handler(inbound: Any) -> None:
            handled.append(inbound.message.text)

        def authorize(incoming: Incoming) -> bool:
            asked.append(incoming.message.text)
            return True

        async def main() -> None:
            words = "I could not answer: " + "sorry " * 12_000
            async with msgledger.open(tmp_path / "first.db", [bot_of(room)]) as first:
                for text, origin in ((words, FAILURE), ("short and untagged", None)):
                    delivery = await first.send(Message.text(text, to=place(room), origin=origin))
                    assert delivery.status == "sent", delivery
            second = hearing(channel_of(other, room.server.url))
            async with msgledger.open(
                tmp_path / "second.db", [second], on_message=handler, authorize=authorize
            ) as gate:
                for event in room.server.messages(other, room.id):
                    await (await gate.receive({**event, "room_id": room.id}, channel="matrix")).done
                async with asyncio.timeout(30):
                    while not handled:
                        await asyncio.sleep(0.01)
                dropped = [one async for one in gate.events(topics="InboundDropped")]
            assert [one.event.reason for one in dropped] == ["echo", "echo"]

        asyncio.run(main())
        assert len(shown(room)) == 3, "a person sees all of it"
        assert asked == handled == ["short and untagged"]
        assert [event["content"][TAG].get("code") for event in room.messages()] == ["model_login_expired"] * 2 + [None]

    def test_our_own_are_known_after_a_restart(self, room: Room, tmp_path: Path) -> None:
        """ECHO-5, SC-62: by the transaction that the homeserver gives back, by sender, or by the receipt alone."""

        async def main() -> None:
            async with msgledger.open(tmp_path / "l.db", [bot_of(room)]) as gateway:
                await gateway.send(Message.text("ours", to=place(room)))
            [event] = room.messages()
            assert event["unsigned"]["transaction_id"]
            for way, known in (("label", {"label"}), ("own", {"own"}), ("receipt", ())):
                channel = hearing(bot_of(room), known)
                async with msgledger.open(tmp_path / "l.db", [channel], on_message=answers) as gateway:
                    again = {**event, "room_id": room.id, "way": way}
                    taken = await gateway.receive(again, channel="matrix")
                    assert not taken.repeated
                    dropped = [one async for one in gateway.events(topics="InboundDropped")]
                    assert dropped[-1].event.reason == "own"

        async def answers(inbound: Any) -> None:
            await inbound.reply("an echo storm begins")

        asyncio.run(main())
        assert room.bodies() == ["ours"]

    def test_the_tag_survives_an_edit(self, room: Room) -> None:
        """ORG-5, CH-5: as the homeserver shows the message afterwards."""
        channel = bot_of(room)
        (outcome,) = sent(channel, Message.text("before", to=place(room)), origin=FAILURE)
        of = event_id(outcome)
        sent(channel, Message.text("after", to=place(room)), action="edit", of_platform_id=of, origin=FAILURE)
        latest = room.messages()[0]["unsigned"]["m.relations"]["m.replace"]["content"]
        assert latest["m.new_content"][TAG]["code"] == "model_login_expired"


def joined(room: Room, name: str) -> Login:
    """One more bot in the room."""
    server = room.server
    login = server.login(server.register(f"{name}-{Path(room.id).name.strip('!').split(':')[0].lower()}"), "OTHER")
    server.invite(room.bot, room.id, login.user_id)
    server.join(login, room.id)
    return login


def hearing(channel: Any, known: Collection[str] = ()) -> Any:
    """The channel with ears of the test's own, so that it says as much of an event as the test wants."""

    def normalize(event: Any) -> Incoming:
        message = Message(
            Target.group("matrix", event["room_id"]),
            Body(event["content"]["body"]),
            direction="inbound",
            id=event["event_id"],
            sender=event["sender"],
        )
        source = SessionSource(
            "matrix", "group", chat=event["room_id"], sender=event["sender"], is_bot=by_a_program(event)
        )
        label = event.get("unsigned", {}).get("transaction_id") if "label" in known else None
        return Incoming(message=message, source=source, own="own" in known, label=label)

    channel.normalize, channel.ack_policy = normalize, "after_record"
    channel.dedupe_key = lambda event: f"{event['event_id']} {event.get('way')}"
    return channel
