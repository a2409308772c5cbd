"""The Matrix channel against a real Synapse: the claims that its capabilities make, and where they end.

What a room holds is asked of the homeserver itself (`Room`), past the channel and past the proxy.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgledger.adapters.exchange import Request
from msgledger.adapters.http import HttpChannel
from msgledger.adapters.matrix import TEXT_MAX_BYTES, MatrixAdapter, MatrixChannel
from msgledger.adapters.surface import Channel
from msgledger.ledger.errors import InvalidConfig
from msgledger.ledger.message import Message, RenderedUnit, Target
from msgledger.ledger.outcome import Accepted, Cause, FailureClass, Outcome, Proof, Rejected, Unknown

from ..counterparts.proxy import Fate, Proxy, Rule
from ..counterparts.synapse import Login, Room, Synapse
from .contract import Bench, ChannelContract, Seen, context, opened, sent

pytest_plugins = ("tests.counterparts.fixtures",)
pytestmark = pytest.mark.synapse


def channel_of(login: Login, url: str, device_id: str | None = None) -> MatrixChannel:
    return MatrixChannel(url, user_id=login.user_id, token=login.token, device_id=device_id)


def place(room: Room, thread: str | None = None) -> Target:
    return Target.group("matrix", room.id, thread=thread)


def send(channel: Channel, room: Room, text: str, **more: object) -> Outcome:
    (outcome,) = sent(channel, Message.text(text, to=place(room)), **more)
    return outcome


async def _is_ready(channel: Channel) -> None:
    assert channel.ready


def event_id(outcome: Outcome) -> str:
    assert isinstance(outcome, Accepted), repr(outcome)
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


class MatrixBench(Bench):
    def __init__(self, room: Room, proxy: Proxy) -> None:
        self.room, self.proxy, self.secret = room, proxy, room.bot.token

    def channel(self) -> Channel:
        return channel_of(self.room.bot, self.proxy.url)

    def target(self, thread: str | None = None) -> Target:
        return place(self.room, thread)

    def visible(self, target: Target) -> list[Seen]:
        seen: list[Seen] = []
        for event in self.room.messages():
            relation = event["content"].get("m.relates_to", {})
            thread = relation["event_id"] if relation.get("rel_type") == "m.thread" else None
            reply_to = relation.get("m.in_reply_to", {}).get("event_id")
            seen.append(Seen(event["event_id"], event["content"]["body"], thread, reply_to))
        return seen

    def lose_next_answer(self) -> None:
        self.proxy.set(Rule(Fate.LOSE_ANSWER))


class TestContract(ChannelContract):
    @pytest.fixture
    def bench(self, room: Room, proxy: Proxy) -> MatrixBench:
        return MatrixBench(room, proxy)


class TestSending:
    def test_what_was_sent_is_in_the_room(self, room: Room) -> None:
        """RCP-1, CORE-1: the receipt is the event's id, and the event holds the text, HTML in both forms."""
        channel = channel_of(room.bot, room.server.url)
        plain = event_id(send(channel, room, "Grüße 🙂 <b>", key="k1"))
        (html,) = sent(channel, Message.text("<b>fett</b>", to=place(room), format="html"), key="k2")
        first, second = room.messages()
        assert (first["event_id"], first["content"]) == (plain, {"msgtype": "m.text", "body": "Grüße 🙂 <b>"})
        assert (second["event_id"], second["content"]["formatted_body"]) == (event_id(html), "<b>fett</b>")
        assert second["content"]["body"] == "fett"
        assert [event["unsigned"]["transaction_id"] for event in (first, second)] == ["k1", "k2"]

    @pytest.mark.parametrize("char", ["x", '"', "\x01", "🙂"])
    def test_the_longest_events_are_taken(self, room: Room, char: str) -> None:
        """CAP-1: also as a reply in a thread, whatever JSON makes of the text."""
        root = event_id(send(channel_of(room.bot, room.server.url), room, "root"))
        text = char * (TEXT_MAX_BYTES // len(char.encode()))
        message = Message.text(text, to=place(room, thread=root))
        for outcome in sent(channel_of(room.bot, room.server.url), message, reply_to=root):
            event_id(outcome)
        assert "".join(room.bodies()[1:]) == text


class TestDoubt:
    """UNK-1, R4, R5, G4: after silence the same key is sent again inside the window, and one event stands."""

    def test_a_lost_answer_and_a_resend(self, room: Room, proxy: Proxy) -> None:
        """UNK-1, SC-39, FAIL-9: the event stood already; the resend gives its id and makes no other."""
        channel = channel_of(room.bot, proxy.url)
        proxy.set(Rule(Fate.LOSE_ANSWER))
        lost = send(channel, room, "once", key="k")
        assert isinstance(lost, Unknown)
        assert lost.cause is Cause.RESET
        assert room.count("once") == 1

        again = event_id(send(channel, room, "once", key="k", attempt=2))
        assert room.bodies() == ["once"]
        first, second = (passed for passed in proxy.passed if passed.method == "PUT")
        assert (first.path, first.body) == (second.path, second.body)
        assert first.status == second.status == 200
        assert first.answer == second.answer
        assert again in first.answer.decode()

    def test_a_lost_request_and_a_resend(self, room: Room, proxy: Proxy) -> None:
        """FAIL-9, FAIL-11: to us it looks the same, so it is unknown too; the resend makes the one event."""
        channel = channel_of(room.bot, proxy.url)
        proxy.set(Rule(Fate.LOSE_REQUEST))
        assert isinstance(send(channel, room, "once", key="k"), Unknown)
        assert room.bodies() == []
        event_id(send(channel, room, "once", key="k", attempt=2))
        assert room.bodies() == ["once"]

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
        down = send(channel_of(room.bot, room.server.url), room, "once", key="k", attempt=2)
        assert isinstance(down, Rejected)  # SC-12: a refused connection is proof, of this attempt alone
        assert down.proof is Proof.NEVER_DISPATCHED
        room.server.start()
        assert event_id(send(channel, room, "once", key="k", attempt=3)) == stands["event_id"]
        assert room.bodies() == ["once"]

    def test_a_new_token_of_the_device_keeps_the_window(self, room: Room) -> None:
        """R5: the key belongs to the device, so the credential stands and the resend is recognised."""
        old = channel_of(room.bot, room.server.url)
        first = event_id(send(old, room, "once", key="k"))
        renewed = channel_of(room.server.login(room.bot.user_id, room.bot.device_id), room.server.url)
        assert event_id(send(renewed, room, "once", key="k")) == first
        assert old.credential == renewed.credential
        assert room.bodies() == ["once"]

    def test_another_device_voids_the_window(self, room: Room) -> None:
        """R5: the same key from another device makes another event, so the credential must differ, and does."""
        bot = channel_of(room.bot, room.server.url)
        first = event_id(send(bot, room, "twice", key="k"))
        other = channel_of(room.server.login(room.bot.user_id, "OTHER"), room.server.url)
        assert event_id(send(other, room, "twice", key="k")) != first
        assert room.count("twice") == 2
        assert bot.credential != other.credential

    def test_a_logout_voids_the_window_of_the_device(self, room: Room) -> None:
        """R5: known limit, which the channel cannot see. With the device goes what the database knew of its keys."""
        first = event_id(send(channel_of(room.bot, room.server.url), room, "twice", key="k"))
        room.server.logout(room.bot)
        room.server.kill()  # what it still knows from memory goes too
        room.server.start()
        again = Room(room.server, room.server.login(room.bot.user_id, room.bot.device_id), room.id)
        assert event_id(send(channel_of(again.bot, room.server.url), again, "twice", key="k")) != first
        assert again.count("twice") == 2


class TestRefusals:
    """FAIL-11, SC-18: each refusal is the platform's own, and nothing of it is in the room."""

    def test_a_bad_token(self, room: Room) -> None:
        """FAIL-4, SC-04: the channel comes up, and the platform's refusal is what holds the intent."""
        bad = channel_of(Login(room.bot.user_id, room.bot.device_id, "syt_bad"), room.server.url)
        opened(bad, _is_ready)
        refused(send(bad, room, "no"), FailureClass.AUTH, 401, "M_UNKNOWN_TOKEN")
        assert room.bodies() == []

    def test_no_token(self, room: Room) -> None:
        """FAIL-4: as where a proxy takes the header away."""

        class WithoutHeader(MatrixAdapter):
            def authorize(self, request: Request) -> dict[str, str]:
                return {}

        adapter = WithoutHeader(
            room.server.url, user_id=room.bot.user_id, token="unused", device_id="BOT", name="matrix", account=None
        )
        refused(send(HttpChannel(adapter), room, "no"), FailureClass.AUTH, 401, "M_MISSING_TOKEN")
        assert room.bodies() == []

    def test_rooms_that_are_not_ours(self, room: Room) -> None:
        """FAIL-5: an unknown room and somebody else's are one refusal to Synapse."""
        channel = channel_of(room.bot, room.server.url)
        other = room.server.room()
        for id in ("!unknown:counterpart.test", other.id):
            outcome = send(channel, Room(room.server, room.bot, id), "no")
            refused(outcome, FailureClass.PERMISSION, 403, "M_FORBIDDEN")
        assert other.bodies() == []

    def test_what_is_too_large_or_malformed(self, room: Room) -> None:
        """FAIL-3: what rendering would never let through is refused by Synapse as invalid."""
        channel = channel_of(room.bot, room.server.url)
        large = opened(channel, lambda it: it.deliver(RenderedUnit(0, text="x" * 70_000), context(place(room))))
        refused(large, FailureClass.INVALID_PAYLOAD, 413, "M_TOO_LARGE")
        (astray,) = sent(channel, Message.text("no", to=place(room, thread="$unknown")))
        refused(astray, FailureClass.INVALID_PAYLOAD, 400, "M_UNKNOWN")
        assert room.bodies() == []

    def test_a_rate_limit(self, synapse_installed: None, tmp_path: Path) -> None:
        """FAIL-2, SC-08: it says how long to wait, and nothing of it is in the room.

        A resend by key is limited too where Synapse has the key in its database alone, so it may come as a surprise.
        """
        with Synapse(tmp_path, messages_per_second=0.05, burst=3) as server:
            room = server.room()
            channel = channel_of(room.bot, server.url)
            first = event_id(send(channel, room, "first", key="k"))
            limited = spend(channel, room)
            assert event_id(send(channel, room, "first", key="k")) == first  # from memory
            server.kill()
            server.start()
            spend(channel, room)
            again = refused(send(channel, room, "first", key="k"), FailureClass.RATE_LIMIT, 429, "M_LIMIT_EXCEEDED")
            for refusal in (limited, again):
                assert refusal.scope == "account"
                assert refusal.retry_after_s is not None
                assert 1 < refusal.retry_after_s <= 20
            assert set(room.bodies()) == {"first", "within"}


class TestReadiness:
    def test_it_waits_for_the_homeserver(self, room: Room) -> None:
        """REC-11, SC-03, SC-23: down is not ready; once up it learns its device by itself, and is ready."""
        room.server.kill()
        channel = channel_of(room.bot, room.server.url)

        async def steps(channel: Channel) -> None:
            assert not channel.ready
            room.server.start()
            async with asyncio.timeout(20):
                while not channel.ready:
                    await asyncio.sleep(0.02)
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
        opened(channel_of(room.bot, room.server.url, device_id=room.bot.device_id), _is_ready)
