"""The Matrix channel against a real Synapse, where only that will do: what its window outlasts, where it ends, how much
one event holds to the byte, and how long it asks to wait.

What a room holds is asked of the homeserver itself (`Room`), past the channel and past the proxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from msgledger.adapters.matrix_events import CONTENT_MAX_BYTES, TEXT_MAX_BYTES
from msgledger.adapters.surface import Channel, RenderContext
from msgledger.ledger.errors import InvalidConfig, InvalidMessage
from msgledger.ledger.message import Format, Message, RenderedUnit
from msgledger.ledger.outcome import Cause, FailureClass, Proof, Rejected, Unknown

from ..counterparts.proxy import Fate, Proxy, Rule
from ..counterparts.synapse import Room, Synapse
from .contract import context, deliver, opened, sent
from .matrix_kit import (
    bot_of,
    channel_of,
    edit_of,
    event_id,
    is_ready,
    place,
    refused,
    send,
    shown,
    spend,
    until_ready,
)

pytest_plugins = ("tests.counterparts.fixtures",)
pytestmark = pytest.mark.synapse


def most_that(fits: Callable[[int], bool]) -> int:
    """The largest number that does, found by halving."""
    least, most = 1, TEXT_MAX_BYTES
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    return least


class TestSizes:
    """CAP-1, CH-5: the homeserver counts the whole event in bytes, and takes the longest that we render."""

    @pytest.mark.parametrize("char", ["x", '"', "\x01", "🙂"])
    def test_the_longest_messages_are_taken(self, room: Room, char: str) -> None:
        """CAP-1: also as a reply in a thread, whatever JSON makes of the text."""
        root = event_id(send(bot_of(room), room, "root"))
        text = char * (TEXT_MAX_BYTES // len(char.encode()))
        for outcome in sent(bot_of(room), Message.text(text, to=place(room, thread=root)), reply_to=root):
            event_id(outcome)
        assert "".join(room.bodies()[1:]) == text

    @pytest.mark.parametrize(
        ("text", "format"), [("x", "plain"), ('"', "plain"), ("🙂", "plain"), ("<b>&amp;</b>", "html")]
    )
    def test_the_longest_edits_are_taken(self, room: Room, text: str, format: Format) -> None:
        """CAP-1: the longest that rendering lets through, found by halving, is accepted and shown."""

        def fits(times: int) -> bool:
            try:
                return edit_of(text * times, format).format == format
            except InvalidMessage:
                return False

        least = most_that(fits)
        of = event_id(send(bot_of(room), room, "before"))
        told = context(place(room), action="edit", of_platform_id=of)
        unit = edit_of(text * least, format)
        event_id(opened(bot_of(room), lambda it: deliver(it, unit, told)))
        assert shown(room)[0].text == unit.text

    def test_the_longest_html_is_taken(self, room: Room) -> None:
        """CAP-1: one repetition more goes out as its plain text; nothing in between is refused."""
        html = '<a href="https://example.org">"é🙂"</a> '

        def rendered(times: int) -> Message:
            return Message.text(html * times, to=place(room), format="html")

        told = RenderContext(at=1, intent="i")
        least = most_that(lambda times: bot_of(room).render(rendered(times), told).units[0].format == "html")
        for times in (least, least + 1):
            for outcome in sent(bot_of(room), rendered(times)):
                event_id(outcome)
        first, *rest = room.messages()
        assert first["content"]["formatted_body"] == html * least
        assert all("formatted_body" not in event["content"] for event in rest)

    def test_where_the_homeserver_ends(self, room: Room) -> None:
        """CAP-1: it refuses by the whole event: content within our measure is taken, and 5,000 bytes more are not."""
        channel = bot_of(room)
        overhead = len('{"msgtype":"m.text","body":""}')
        for size, taken in ((CONTENT_MAX_BYTES, True), (CONTENT_MAX_BYTES + 5_000, False)):
            unit = RenderedUnit(0, text="x" * (size - overhead))
            outcome = opened(channel, lambda it, unit=unit: deliver(it, unit, context(place(room))))
            if taken:
                event_id(outcome)
            else:
                refused(outcome, FailureClass.INVALID_PAYLOAD, 413, "M_TOO_LARGE")
        assert len(room.bodies()) == 1


class TestDoubt:
    """UNK-1, R4, R5, G4: after silence the same key is sent again inside the window, and one event stands."""

    def test_an_answer_behind_the_deadline(self, room: Room, proxy: Proxy) -> None:
        """FAIL-9, R1: a timeout says nothing of the event, which stands."""
        proxy.set(Rule(hold_s=5.0))
        late = send(channel_of(room.bot, proxy.url), room, "slow", key="k", deadline_s=1.0)
        assert isinstance(late, Unknown)
        assert late.cause is Cause.TIMEOUT
        assert room.count("slow") == 1

    def test_a_killed_homeserver_still_knows_the_key(self, room: Room, proxy: Proxy) -> None:
        """UNK-1, SC-39: SIGKILL after it accepted, the answer lost, a new start: the resend gives the event's id."""
        channel = channel_of(room.bot, proxy.url)
        proxy.set(Rule(Fate.LOSE_ANSWER))
        assert isinstance(send(channel, room, "once", key="k"), Unknown)
        (stands,) = room.messages()
        room.server.kill()
        down = send(bot_of(room), room, "once", key="k", attempt=2)
        assert isinstance(down, Rejected)  # SC-12: a refused connection is proof, of this attempt alone
        assert down.proof is Proof.NEVER_DISPATCHED
        room.server.start()
        assert event_id(send(channel, room, "once", key="k", attempt=3)) == stands["event_id"]
        assert room.bodies() == ["once"]

    def test_a_new_token_of_the_device_keeps_the_window(self, room: Room) -> None:
        """R5: the key belongs to the device, so the credential stands and the resend is recognised."""
        old = bot_of(room)
        first = event_id(send(old, room, "once", key="k"))
        renewed = channel_of(room.server.login(room.bot.user_id, room.bot.device_id), room.server.url)
        assert event_id(send(renewed, room, "once", key="k")) == first
        assert old.credential == renewed.credential
        assert room.bodies() == ["once"]

    def test_another_device_voids_the_window(self, room: Room) -> None:
        """R5: the same key from another device makes another event, so the credential must differ, and does."""
        bot = bot_of(room)
        first = event_id(send(bot, room, "twice", key="k"))
        other = channel_of(room.server.login(room.bot.user_id, "OTHER"), room.server.url)
        assert event_id(send(other, room, "twice", key="k")) != first
        assert room.count("twice") == 2
        assert bot.credential != other.credential

    def test_a_logout_voids_the_window_of_the_device(self, room: Room) -> None:
        """R5: known limit, which the channel cannot see. With the device goes what the database knew of its keys."""
        first = event_id(send(bot_of(room), room, "twice", key="k"))
        room.server.logout(room.bot)
        room.server.kill()  # what it still knows from memory goes too
        room.server.start()
        again = Room(room.server, room.server.login(room.bot.user_id, room.bot.device_id), room.id)
        assert event_id(send(channel_of(again.bot, room.server.url), again, "twice", key="k")) != first
        assert again.count("twice") == 2


class TestRateLimit:
    def test_a_rate_limit(self, synapse_installed: None, tmp_path: Path) -> None:
        """FAIL-2, SC-08: it says how long to wait, and nothing of it is in the room.

        What Synapse knows by heart is answered all the same; what it has in its database only is limited too.
        """
        with Synapse(tmp_path, messages_per_second=0.05, burst=3) as server:
            room = server.room()
            channel = channel_of(room.bot, server.url)
            first = event_id(send(channel, room, "first", key="k"))
            limited = spend(channel, room)
            assert event_id(send(channel, room, "first", key="k")) == first
            assert (limited.scope, limited.bytes_left) == ("account", True)
            assert limited.retry_after_s is not None
            assert 1 < limited.retry_after_s <= 20
            assert set(room.bodies()) == {"first", "within"}


class TestReadiness:
    def test_it_waits_for_the_homeserver(self, room: Room) -> None:
        """REC-11, SC-03, SC-23: down is not ready; once up it learns its device by itself, and is ready."""
        room.server.kill()
        channel = bot_of(room)

        async def steps(channel: Channel) -> None:
            assert not channel.ready
            room.server.start()
            await until_ready(channel)
            outcome = await channel.deliver(RenderedUnit(0, text="at last"), context(place(room)))
            event_id(outcome)

        opened(channel, steps)
        assert channel.credential.endswith(f"{room.bot.user_id} device {room.bot.device_id}")
        assert room.bodies() == ["at last"]

    def test_a_token_of_another_device_is_refused(self, room: Room) -> None:
        """CAP-6: the device that was configured and the token's must be one."""
        channel = channel_of(room.bot, room.server.url, device_id="ANOTHER")
        with pytest.raises(InvalidConfig, match="ANOTHER"):
            asyncio.run(channel.open())
        assert not channel.ready
        assert not channel._driver.is_open
        opened(channel_of(room.bot, room.server.url, device_id=room.bot.device_id), is_ready)
