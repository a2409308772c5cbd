"""The Matrix channel on both servers: the contract, and what a plain room shows. Where a server cannot do what a test
needs, `tests/counterparts/differences.py` says why, and docs/matrix.md says it to readers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgledger.adapters.matrix import MatrixAdapter
from msgledger.adapters.matrix_origin import TAG
from msgledger.ledger.message import Message, RenderedUnit
from msgledger.ledger.outcome import FailureClass, Sent, Unknown, Unresolved

from ..counterparts.differences import CANNOT
from ..counterparts.proxy import Fate, Proxy, Rule
from ..counterparts.synapse import Login, Room
from .contract import ChannelContract, context, opened, sent
from .matrix_kit import (
    READS,
    MatrixBench,
    altered,
    bot_of,
    change,
    channel_of,
    event_id,
    is_ready,
    looked_up,
    place,
    refused,
    send,
    shown,
)

pytest_plugins = ("tests.counterparts.fixtures",)

DOCS = Path(__file__).resolve().parents[2] / "docs" / "matrix.md"


class TestContract(ChannelContract):
    """CH-5, CAP-6: the contract of every channel. Three of its tests need what only Synapse does."""

    @pytest.fixture
    def bench(self, any_room: Room, any_proxy: Proxy) -> MatrixBench:
        return MatrixBench(any_room, any_proxy)

    test_a_message_is_edited = pytest.mark.needs("edit")(ChannelContract.test_a_message_is_edited)
    test_a_message_is_deleted = pytest.mark.needs("redact")(ChannelContract.test_a_message_is_deleted)
    test_a_look_up_finds_what_was_sent = pytest.mark.needs("read")(ChannelContract.test_a_look_up_finds_what_was_sent)
    test_a_look_up_says_not_sent_only_with_proof = pytest.mark.needs("read")(
        ChannelContract.test_a_look_up_says_not_sent_only_with_proof
    )


def test_the_differences_are_written_down() -> None:
    """CH-5, CAP-6: each thing that a server cannot do stands in the document, in the same words."""
    text = " ".join(DOCS.read_text().split())
    missing = [reason for known in CANNOT.values() for reason in known.values() if reason not in text]
    assert missing == []


def test_what_was_sent_is_in_the_room(any_room: Room) -> None:
    """CH-5, RCP-1, CORE-1: the receipt is the event's id, and the event holds the text, HTML in both forms."""
    channel = bot_of(any_room)
    plain = event_id(send(channel, any_room, "Grüße 🙂 <b>", key="k1"))
    (html,) = sent(channel, Message.text("<b>fett</b>", to=place(any_room), format="html"), key="k2")
    first, second = any_room.messages()
    assert first["content"].pop(TAG)["by"] == any_room.bot.user_id  # ORG-5: on every message of ours
    assert (first["event_id"], first["content"]) == (plain, {"msgtype": "m.text", "body": "Grüße 🙂 <b>"})
    assert (second["event_id"], second["content"]["formatted_body"]) == (event_id(html), "<b>fett</b>")
    assert second["content"]["body"] == "fett"
    assert [event["unsigned"]["transaction_id"] for event in (first, second)] == ["k1", "k2"]


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
def test_silence_and_a_resend(any_room: Room, any_proxy: Proxy, fate: Fate) -> None:
    """UNK-1, SC-39, FAIL-9: lost on the way there or back it looks the same; sent again by its key it is one event."""
    channel = channel_of(any_room.bot, any_proxy.url)
    any_proxy.set(Rule(fate), READS)
    assert isinstance(send(channel, any_room, "once", key="k"), Unknown)
    assert any_room.count("once") == (1 if fate is Fate.LOSE_ANSWER else 0)
    again = event_id(send(channel, any_room, "once", key="k", attempt=2))
    assert [event["event_id"] for event in any_room.messages()] == [again]
    if fate is Fate.LOSE_ANSWER:
        first, second = (passed for passed in any_proxy.passed if passed.method == "PUT")
        assert (first.path, first.body, first.answer) == (second.path, second.body, second.answer)


class TestRelations:
    """CAP-3, REL-1: what an event says that it answers, and what the server makes of it."""

    def test_a_reply_in_a_thread(self, any_room: Room) -> None:
        """CH-5: the thread's root and the event that is answered, each by its own name."""
        channel = bot_of(any_room)
        root = event_id(send(channel, any_room, "root"))
        threaded = place(any_room, thread=root)
        (first,) = sent(channel, Message.text("in it", to=threaded))
        (second,) = sent(channel, Message.text("to that", to=threaded), reply_to=event_id(first))
        relations = [event["content"].get("m.relates_to") for event in any_room.messages()]
        in_thread = {"rel_type": "m.thread", "event_id": root}
        assert relations == [
            None,
            {**in_thread, "is_falling_back": True, "m.in_reply_to": {"event_id": root}},
            {**in_thread, "is_falling_back": False, "m.in_reply_to": {"event_id": event_id(first)}},
        ]
        assert event_id(second) == any_room.messages()[2]["event_id"]

    def test_a_reply_to_a_later_part_of_our_own(self, any_room: Room) -> None:
        """RCP-3: each part of a long text is an event of its own that can be answered."""
        channel = bot_of(any_room)
        parts = [event_id(one) for one in sent(channel, Message.text("word " * 13_000, to=place(any_room)))]
        assert len(parts) == 2
        event_id(send(channel, any_room, "about the end", reply_to=parts[1]))
        assert shown(any_room)[-1].reply_to == parts[1]

    def test_a_reply_to_what_is_gone(self, any_room: Room) -> None:
        """CAP-3: a server does not look whether the event is there, so the reply arrives, with its dead name."""
        event_id(send(bot_of(any_room), any_room, "to nobody", reply_to="$gone"))
        assert shown(any_room)[-1].reply_to == "$gone"

    @pytest.mark.needs("relations")
    def test_a_thread_that_is_none(self, any_room: Room) -> None:
        """FAIL-3, FAIL-11: an unknown root, and one that is in a thread itself, are refused with nothing visible."""
        channel = bot_of(any_room)
        root = event_id(send(channel, any_room, "root"))
        (inner,) = sent(channel, Message.text("inner", to=place(any_room, thread=root)))
        for thread in ("$unknown", event_id(inner)):
            (astray,) = sent(channel, Message.text("no", to=place(any_room, thread=thread)))
            refused(astray, FailureClass.INVALID_PAYLOAD, 400, "M_UNKNOWN")
        assert any_room.bodies() == ["root", "inner"]

    @pytest.mark.needs("redact")
    def test_a_thread_whose_root_was_redacted(self, any_room: Room) -> None:
        """CAP-3: the empty event still holds its thread together."""
        channel = bot_of(any_room)
        root = event_id(send(channel, any_room, "root"))
        event_id(change(channel, any_room, "delete", root))
        (outcome,) = sent(channel, Message.text("still here", to=place(any_room, thread=root)), reply_to=root)
        event_id(outcome)
        assert [(seen.text, seen.thread) for seen in shown(any_room)] == [("still here", root)]


class TestRefusals:
    """FAIL-11, SC-18: each refusal is the platform's own, and nothing of it is in the room."""

    def test_a_bad_token(self, any_room: Room) -> None:
        """FAIL-4, SC-04: the channel comes up, and the platform's refusal is what holds the intent."""
        bad = channel_of(Login(any_room.bot.user_id, any_room.bot.device_id, "syt_bad"), any_room.server.url)
        opened(bad, is_ready)
        refused(send(bad, any_room, "no"), FailureClass.AUTH, 401, "M_UNKNOWN_TOKEN")
        assert any_room.bodies() == []

    @pytest.mark.needs("missing token")
    def test_no_token(self, any_room: Room) -> None:
        """FAIL-4: as where a proxy takes the header away."""
        bare = altered(any_room, authorize=lambda self, request: {})
        refused(send(bare, any_room, "no"), FailureClass.AUTH, 401, "M_MISSING_TOKEN")
        assert any_room.bodies() == []

    @pytest.mark.needs("forbidden")
    def test_rooms_that_are_not_ours(self, any_room: Room) -> None:
        """FAIL-5: an unknown room and somebody else's are one refusal, for edits too. A redaction tells them apart."""
        channel = bot_of(any_room)
        other = any_room.server.room()
        unknown = Room(any_room.server, any_room.bot, "!unknown:counterpart.test")
        barred = Room(any_room.server, any_room.bot, other.id)
        for room in (unknown, barred):
            for outcome in (send(channel, room, "no"), change(channel, room, "edit", "$any", "no")):
                refused(outcome, FailureClass.PERMISSION, 403, "M_FORBIDDEN")
        refused(change(channel, barred, "delete", "$any"), FailureClass.PERMISSION, 403, "M_FORBIDDEN")
        refused(change(channel, unknown, "delete", "$any"), FailureClass.NOT_FOUND, 404, "M_NOT_FOUND")
        assert other.bodies() == []

    @pytest.mark.needs("not found")
    def test_a_room_that_is_not_there(self, any_room: Room) -> None:
        """FAIL-11: where a server does say so, it is `not_found`."""
        astray = Room(any_room.server, any_room.bot, "!unknown:matrix.test")
        refused(send(bot_of(any_room), astray, "no"), FailureClass.NOT_FOUND, 404, "M_NOT_FOUND")

    @pytest.mark.parametrize(
        ("body", "code"), [(b"{", "M_NOT_JSON"), (b"\xff", "M_NOT_JSON"), (b"[]", "M_BAD_JSON"), (b"7", "M_BAD_JSON")]
    )
    def test_what_is_no_event(self, any_room: Room, body: bytes, code: str) -> None:
        """FAIL-3: as where something on the way damages the request."""

        def build(self: MatrixAdapter, unit: RenderedUnit, told: object) -> object:
            request = MatrixAdapter.build(self, unit, told)  # type: ignore[arg-type]
            return type(request)(request.method, request.path, headers=request.headers, body=body)

        refused(send(altered(any_room, build=build), any_room, "no"), FailureClass.INVALID_PAYLOAD, 400, code)
        assert any_room.bodies() == []

    def test_what_is_too_large(self, any_room: Room) -> None:
        """FAIL-3: what rendering would never let through is refused as invalid."""
        huge = RenderedUnit(0, text="x" * 2_000_000)
        large = opened(bot_of(any_room), lambda it: it.deliver(huge, context(place(any_room))))
        refused(large, FailureClass.INVALID_PAYLOAD, 413, "M_TOO_LARGE")
        assert any_room.bodies() == []


def test_a_server_that_cannot_be_read(crabline_room: Room) -> None:
    """UNK-3, UNK-5: without a history nothing is proved either way: unresolved, and the key is what is left."""
    channel = bot_of(crabline_room)
    event_id(send(channel, crabline_room, "there", key="k"))
    verdict = looked_up(channel, crabline_room, key="k")
    assert isinstance(verdict, Unresolved) and not isinstance(verdict, Sent)
    assert (verdict.retryable, verdict.evidence["status"]) == (True, 404)


def test_a_server_that_cannot_redact(crabline_room: Room) -> None:
    """FAIL-11: its refusal is the platform's own word, and the message stands."""
    channel = bot_of(crabline_room)
    of = event_id(send(channel, crabline_room, "stays"))
    refused(change(channel, crabline_room, "delete", of), FailureClass.NOT_FOUND, 404, "M_UNRECOGNIZED")
    assert crabline_room.bodies() == ["stays"]
