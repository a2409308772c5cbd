"""Edits and redactions against a real Synapse: what they name, what people see then, and what stands after silence."""

from __future__ import annotations

from typing import Any

import pytest
from msgledger.adapters.matrix_events import edited_content
from msgledger.ledger.message import Message, ReceiptPart
from msgledger.ledger.outcome import Accepted, FailureClass, Unknown

from ..counterparts.proxy import Fate, Proxy, Rule
from ..counterparts.synapse import Room
from .contract import Seen, sent
from .matrix_kit import (
    READS,
    bot_of,
    change,
    channel_of,
    edit_of,
    event_id,
    place,
    refused,
    send,
    shown,
    untagged,
)

pytest_plugins = ("tests.counterparts.fixtures",)
pytestmark = pytest.mark.synapse


def redactions(room: Room) -> list[dict[str, Any]]:
    return [event for event in room.server.history(room.bot, room.id) if event["type"] == "m.room.redaction"]


class TestEdits:
    def test_an_edit_replaces_what_people_see(self, room: Room) -> None:
        """CH-5, CAP-6, RCP-3: the event keeps its id and place; the receipt names it first, then the edit."""
        channel = bot_of(room)
        of = event_id(send(channel, room, "before"))
        event_id(send(channel, room, "behind"))
        outcome = change(channel, room, "edit", of, "after", key="e")
        assert shown(room)[0] == Seen(of, "after")
        edit = room.messages()[-1]
        assert edit["content"]["body"] == "* after"
        assert edit["unsigned"]["transaction_id"] == "e"
        assert isinstance(outcome, Accepted)
        assert outcome.parts == (ReceiptPart(0, of), ReceiptPart(1, edit["event_id"]))

    def test_an_edit_of_html(self, room: Room) -> None:
        """CH-5: both forms, in the new content and in what a client shows that knows no edits."""
        channel = bot_of(room)
        of = event_id(send(channel, room, "before"))
        message = Message.text("<b>after</b>", to=place(room), format="html")
        unit = edit_of("<b>after</b>", "html")
        assert message.body is not None and unit.text == "after"
        (outcome,) = sent(channel, message, action="edit", of_platform_id=of)
        event_id(outcome)
        latest = room.messages()[0]["unsigned"]["m.relations"]["m.replace"]["content"]
        assert untagged(latest) == edited_content(unit, of)
        assert latest["formatted_body"] == "* <b>after</b>"
        assert latest["m.new_content"]["formatted_body"] == "<b>after</b>"

    def test_an_edit_of_an_edit(self, room: Room) -> None:
        """RCP-4: it names the message itself. Synapse takes one that names an edit, and shows it to nobody."""
        channel = bot_of(room)
        of = event_id(send(channel, room, "first"))
        second = event_id(change(channel, room, "edit", of, "second"))
        event_id(change(channel, room, "edit", second, "astray"))
        assert [seen.text for seen in shown(room)] == ["second"]
        event_id(change(channel, room, "edit", of, "third"))
        assert [seen.text for seen in shown(room)] == ["third"]

    def test_an_edit_in_a_thread(self, room: Room) -> None:
        """CAP-3, CH-5: the message stays in its thread and remains the answer that it was."""
        channel = bot_of(room)
        root = event_id(send(channel, room, "root"))
        threaded = Message.text("before", to=place(room, thread=root))
        (inner,) = sent(channel, threaded, reply_to=root)
        edit = Message.text("after", to=place(room, thread=root))
        (outcome,) = sent(channel, edit, action="edit", of_platform_id=event_id(inner), reply_to=root)
        event_id(outcome)
        assert shown(room)[-1] == Seen(event_id(inner), "after", root, root)

    def test_an_edit_of_an_unknown_event(self, room: Room) -> None:
        """FAIL-3, FAIL-11: Synapse says 400 M_UNKNOWN; nothing becomes visible, and none goes out as a new message."""
        outcome = change(bot_of(room), room, "edit", "$unknown", "no")
        refused(outcome, FailureClass.INVALID_PAYLOAD, 400, "M_UNKNOWN")
        assert room.bodies() == []

    def test_an_edit_of_a_redacted_event(self, room: Room) -> None:
        """CH-5: known limit. Synapse takes it; it is not shown, but its text stands in the room's history."""
        channel = bot_of(room)
        of = event_id(send(channel, room, "gone"))
        event_id(change(channel, room, "delete", of))
        event_id(change(channel, room, "edit", of, "too late"))
        assert shown(room) == []
        assert room.count("* too late") == 1

    def test_a_lost_edit_and_a_resend(self, room: Room, proxy: Proxy) -> None:
        """UNK-1, SC-39, G4: over SIGKILL too, the same transaction is one edit."""
        channel = channel_of(room.bot, proxy.url)
        of = event_id(send(channel, room, "before"))
        proxy.set(Rule(Fate.LOSE_ANSWER), READS)
        assert isinstance(change(channel, room, "edit", of, "after", key="e"), Unknown)
        room.server.kill()
        room.server.start()
        again = event_id(change(channel, room, "edit", of, "after", key="e", attempt=2))
        assert [event["event_id"] for event in room.messages()] == [of, again]


class TestRedactions:
    def test_a_redaction_empties_the_event(self, room: Room) -> None:
        """CH-5, CAP-6: text and HTML are gone; the receipt names the event first, then the redaction."""
        channel = bot_of(room)
        of = event_id(send(channel, room, "secret"))
        event_id(send(channel, room, "stays"))
        outcome = change(channel, room, "delete", of, key="r")
        assert [seen.text for seen in shown(room)] == ["stays"]
        (redaction,) = redactions(room)
        assert (redaction["redacts"], redaction["unsigned"]["transaction_id"]) == (of, "r")
        assert isinstance(outcome, Accepted)
        assert [part.platform_id for part in outcome.parts] == [of, redaction["event_id"]]

    def test_a_lost_redaction_and_a_resend(self, room: Room, proxy: Proxy) -> None:
        """UNK-1, SC-39, G4: over SIGKILL too, the same transaction is one redaction."""
        channel = channel_of(room.bot, proxy.url)
        of = event_id(send(channel, room, "secret"))
        proxy.set(Rule(Fate.LOSE_ANSWER, path="/redact/"))
        assert isinstance(change(channel, room, "delete", of, key="r"), Unknown)
        room.server.kill()
        room.server.start()
        again = event_id(change(channel, room, "delete", of, key="r", attempt=2))
        assert [event["event_id"] for event in redactions(room)] == [again]

    def test_a_redaction_of_an_unknown_event(self, room: Room) -> None:
        """CH-5: known limit. Synapse says 200 with an id; that is the receipt, and the room shows nothing."""
        event_id(change(bot_of(room), room, "delete", "$unknown"))
        assert redactions(room) == []

    def test_what_is_gone_can_go_again(self, room: Room) -> None:
        """CH-5: another redaction of the same event changes nothing."""
        channel = bot_of(room)
        of = event_id(send(channel, room, "secret"))
        first = event_id(change(channel, room, "delete", of, key="r1"))
        assert event_id(change(channel, room, "delete", of, key="r2")) != first
        assert shown(room) == []

    def test_somebody_elses_message(self, room: Room) -> None:
        """FAIL-5: without the power for it the homeserver refuses, and the message stands."""
        server = room.server
        ann = server.login(server.register(f"ann-{room.bot.user_id[5:13]}"), "A")
        shared = Room(server, ann, server.create_room(ann, preset="public_chat"))
        server.join(room.bot, shared.id)
        theirs = event_id(send(bot_of(shared), shared, "mine"))
        outcome = change(bot_of(room), Room(server, room.bot, shared.id), "delete", theirs)
        refused(outcome, FailureClass.PERMISSION, 403, "M_FORBIDDEN")
        assert shared.bodies() == ["mine"]
