"""Looking up what became of a request, in the rooms of a real Synapse: found by its transaction, or proved absent."""

from __future__ import annotations

import time

import pytest
from msgledger.ledger.limits import HOUR_MS
from msgledger.ledger.message import ReceiptPart, RenderedUnit
from msgledger.ledger.outcome import NotSent, Sent, Unknown, Unresolved

from ..counterparts.proxy import Fate, Proxy, Rule
from ..counterparts.synapse import Login, Room
from .matrix_kit import bot_of, change, channel_of, event_id, looked_up, send

pytest_plugins = ("tests.counterparts.fixtures",)
pytestmark = pytest.mark.synapse


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def reads(proxy: Proxy) -> list[str]:
    return [one.path for one in proxy.passed if one.method == "GET" and "/rooms/" in one.path]


def test_an_edit_is_found(room: Room, proxy: Proxy) -> None:
    """UNK-3: after a lost answer, with the same receipt that the answer would have been."""
    channel = channel_of(room.bot, proxy.url)
    of = event_id(send(channel, room, "before"))
    proxy.set(Rule(Fate.LOSE_ANSWER))
    assert isinstance(change(channel, room, "edit", of, "after", key="e"), Unknown)
    verdict = looked_up(channel, room, key="e", action="edit", of_platform_id=of, first_attempt_at=now_ms())
    assert isinstance(verdict, Sent)
    edit = room.messages()[-1]["event_id"]
    assert verdict.receipt.parts == (ReceiptPart(0, of), ReceiptPart(1, edit))
    assert len(room.messages()) == 2


def test_an_edit_that_never_arrived(room: Room) -> None:
    """UNK-4: the message that it names stood before it, so reading back to that is enough."""
    channel = bot_of(room)
    for n in range(20):
        event_id(send(channel, room, f"older {n}"))
    of = event_id(send(channel, room, "before"))
    event_id(send(channel, room, "behind"))
    verdict = looked_up(channel, room, action="edit", of_platform_id=of, first_attempt_at=now_ms())
    assert isinstance(verdict, NotSent)
    assert (verdict.evidence["until"], verdict.evidence["pages"]) == ("earlier", 1)


def test_a_redaction_is_read_off_its_event(room: Room, proxy: Proxy) -> None:
    """UNK-3, UNK-4: unredacted it never arrived; redacted it did, or somebody else's did, and the event is gone."""
    channel = channel_of(room.bot, proxy.url)
    of = event_id(send(channel, room, "secret"))
    told = {"action": "delete", "of_platform_id": of}
    assert looked_up(channel, room, key="r", **told) == NotSent({"ids": [of]})
    proxy.set(Rule(Fate.LOSE_ANSWER, path="/redact/"))
    assert isinstance(change(channel, room, "delete", of, key="r"), Unknown)
    for key, ours in (("r", True), ("another", False)):
        verdict = looked_up(channel, room, key=key, **told)
        assert isinstance(verdict, Sent)
        assert verdict.receipt.parts[0].platform_id == of
        assert verdict.evidence["ours"] is ours


def test_a_redaction_of_an_unknown_event_proves_nothing(room: Room) -> None:
    """UNK-5: Synapse accepts one and never shows it, so neither answer would be true."""
    verdict = looked_up(bot_of(room), room, action="delete", of_platform_id="$unknown")
    assert isinstance(verdict, Unresolved)
    assert (verdict.retryable, verdict.evidence) == (True, {"status": 404})


def test_a_redacted_message_is_found(room: Room) -> None:
    """UNK-3: the homeserver keeps the transaction of what was taken away: it was sent, and is not sent again."""
    channel = bot_of(room)
    of = event_id(send(channel, room, "secret", key="k"))
    event_id(change(channel, room, "delete", of))
    verdict = looked_up(channel, room, key="k")
    assert isinstance(verdict, Sent)
    assert verdict.receipt.platform_id == of


def test_several_pages(room: Room, proxy: Proxy) -> None:
    """UNK-3, UNK-4: found behind many messages of ours, or absent from all of them, over growing pages."""
    channel = channel_of(room.bot, proxy.url)
    began = now_ms()
    of = event_id(send(channel, room, "wanted", key="k"))
    for n in range(30):
        event_id(send(bot_of(room), room, f"later {n}"))
    found = looked_up(channel, room, key="k", first_attempt_at=began)
    assert isinstance(found, Sent)
    assert found.receipt.platform_id == of
    assert (found.evidence["pages"], len(found.evidence["ids"])) == (3, 31)
    assert found.evidence["ids"][-1] == of
    assert found.evidence["from"] <= found.evidence["to"] <= now_ms()

    proxy.set()
    absent = looked_up(channel, room, key="never", first_attempt_at=began)
    assert isinstance(absent, NotSent)
    assert (absent.evidence["pages"], absent.evidence["until"]) == (4, "start")
    assert ["/messages" in path for path in reads(proxy)][-5:] == [True, True, True, True, False]


def test_the_messages_of_others_cost_no_page(room: Room) -> None:
    """UNK-4: only what is ours is read, so a busy room is read as fast as a quiet one."""
    ann = joined(room)
    for n in range(30):
        event_id(send(bot_of(Room(room.server, ann, room.id)), room, f"ann {n}"))
    absent = looked_up(bot_of(room), room, key="never", first_attempt_at=now_ms())
    assert isinstance(absent, NotSent)
    assert (absent.evidence["pages"], absent.evidence["ids"]) == (1, [])


def test_another_device_is_shown_no_transaction(room: Room) -> None:
    """R5, UNK-5: it cannot tell whether an event of ours is the one; where there is none of ours, absence is proved."""
    other = channel_of(room.server.login(room.bot.user_id, "OTHER"), room.server.url)
    empty = looked_up(other, room, key="k", first_attempt_at=now_ms())
    assert isinstance(empty, NotSent)
    of = event_id(send(bot_of(room), room, "there", key="k"))
    verdict = looked_up(other, room, key="k", first_attempt_at=now_ms())
    assert isinstance(verdict, Unresolved)
    assert "another device" in verdict.detail
    assert verdict.evidence["ids"] == [of]


def test_after_a_logout_of_the_device(room: Room) -> None:
    """R5: the keys that it forgot with the device stand in the room still, over a restart too."""
    of = event_id(send(bot_of(room), room, "there", key="k"))
    room.server.logout(room.bot)
    room.server.kill()
    room.server.start()
    again = channel_of(room.server.login(room.bot.user_id, room.bot.device_id), room.server.url)
    verdict = looked_up(again, room, key="k")
    assert isinstance(verdict, Sent)
    assert verdict.receipt.platform_id == of


def test_outside_the_room(room: Room) -> None:
    """UNK-5: what stood before we left is found, absence is not claimed; and back in again it is."""
    bot = room.bot
    ann = room.server.login(room.server.register(f"own-{bot.user_id[5:13]}"), "A")
    hidden = [{"type": "m.room.history_visibility", "state_key": "", "content": {"history_visibility": "joined"}}]
    id = room.server.create_room(ann, preset="public_chat", initial_state=hidden)
    shared = Room(room.server, bot, id)
    never = Room(room.server, bot, room.server.create_room(ann))
    assert isinstance(looked_up(bot_of(never), never), Unresolved)

    room.server.join(bot, id)
    of = event_id(send(bot_of(shared), shared, "mine", key="k"))
    room.server.leave(bot, id)
    found = looked_up(bot_of(shared), shared, key="k")
    assert isinstance(found, Sent) and found.receipt.platform_id == of
    gone = looked_up(bot_of(shared), shared, key="never")
    assert isinstance(gone, Unresolved) and "not in the room" in gone.detail

    room.server.join(bot, id)
    assert isinstance(looked_up(bot_of(shared), shared, key="k"), Sent)
    assert isinstance(looked_up(bot_of(shared), shared, key="never"), NotSent)


def test_an_attempt_that_is_not_of_today(room: Room) -> None:
    """UNK-5: behind the horizon, or before a clock that was set back, absence is not claimed."""
    channel = bot_of(room)
    event_id(send(channel, room, "just now"))
    for hours in (-25, 1):
        verdict = looked_up(channel, room, key="never", first_attempt_at=now_ms() + hours * HOUR_MS)
        assert isinstance(verdict, Unresolved)
        assert "the clock was set back" in verdict.detail
    assert isinstance(looked_up(channel, room, key="never", first_attempt_at=now_ms() - HOUR_MS), NotSent)


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
def test_a_page_that_is_lost(room: Room, proxy: Proxy, fate: Fate) -> None:
    """UNK-3: a look-up that fails in the middle says so, claims nothing, and is asked again."""
    channel = channel_of(room.bot, proxy.url)
    for n in range(10):
        event_id(send(channel, room, f"later {n}"))
    proxy.set(Rule(fate, method="GET", path="/messages", nth=2))
    verdict = looked_up(channel, room, key="never")
    assert isinstance(verdict, Unresolved) and verdict.retryable
    assert verdict.evidence == {"phase": "dispatched", "pages": 1}


def test_a_token_that_is_void(room: Room) -> None:
    """UNK-3, FAIL-4: nothing can be read with it."""
    void = channel_of(Login(room.bot.user_id, room.bot.device_id, "syt_bad"), room.server.url)
    verdict = looked_up(void, room, RenderedUnit(0, text="any"), key="k")
    assert isinstance(verdict, Unresolved) and verdict.retryable
    assert verdict.evidence["status"] == 401


def joined(room: Room) -> Login:
    """Somebody else in the same room."""
    server = room.server
    ann = server.login(server.register(f"ann-{room.bot.user_id[5:13]}"), "A")
    server.invite(room.bot, room.id, ann.user_id)
    server.join(ann, room.id)
    return ann
