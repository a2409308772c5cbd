"""What comes in over a real homeserver: nothing is lost, nothing is answered twice, and the past stays the past."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgledger
import pytest
from msgledger.adapters.matrix import MatrixChannel
from msgledger.adapters.receiving import Ignored, Incoming, Taken

from ..counterparts.crabline import SOMEBODY, Crabline
from ..counterparts.proxy import Fate, Proxy, Rule
from ..counterparts.synapse import Login, Room, Synapse
from .matrix_kit import channel_of

pytest_plugins = ("tests.counterparts.fixtures",)
PATIENCE_S = 60.0


class People:
    """Somebody beside the bot, and what they do."""

    def __init__(self, room: Room) -> None:
        assert isinstance(room.server, Synapse)
        self.server, self.room, self.bot = room.server, room, room.bot
        self.ann = self.new("ann")
        self.enter(self.ann, room.id)

    def new(self, name: str) -> Login:
        return self.server.login(self.server.register(f"{name}-{secrets.token_hex(4)}"), "PHONE")

    def enter(self, who: Login, room: str, host: Login | None = None) -> None:
        self.server.invite(host or self.bot, room, who.user_id)
        self.server.join(who, room)

    def say(self, text: str, room: str | None = None, who: Login | None = None, **content: Any) -> str:
        body = {"msgtype": "m.text", "body": text, **content}
        path = f"/_matrix/client/v3/rooms/{quote(room or self.room.id, safe='')}/send/m.room.message/"
        return self.server._call("PUT", path + secrets.token_hex(8), body, who or self.ann)["event_id"]

    def redact(self, event: str) -> None:
        path = f"/_matrix/client/v3/rooms/{quote(self.room.id, safe='')}/redact/{quote(event, safe='')}/"
        self.server._call("PUT", path + secrets.token_hex(8), {}, self.ann)


@pytest.fixture
def people(room: Room) -> People:
    return People(room)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(true):
            await asyncio.sleep(0.02)


class Ear:
    """An intake that is done at once, and keeps what it was given."""

    policy = "after_record"

    def __init__(self, channel: MatrixChannel, cursor: str | None = None) -> None:
        self._adapter = channel.adapter
        self.kept = cursor
        self.events: list[Any] = []

    async def take(self, event: Any) -> Taken:
        self.events.append(event)
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return Taken(inbound="i", reached=True, done=done)

    async def cursor(self) -> str | None:
        return self.kept

    async def advance(self, cursor: str) -> None:
        self.kept = cursor

    @property
    def heard(self) -> list[Incoming | Ignored]:
        return [self._adapter.normalize(event) for event in self.events]  # type: ignore[attr-defined]

    @property
    def texts(self) -> list[str]:
        return [one.message.text for one in self.heard if isinstance(one, Incoming)]


class Listening:
    """The channel at work, without a gateway."""

    def __init__(self, login: Login, url: str, cursor: str | None = None) -> None:
        self.channel = channel_of(login, url)
        self.ear = Ear(self.channel, cursor)

    async def __aenter__(self) -> Ear:
        await self.channel.open()
        self.task = asyncio.create_task(self.channel.receive(self.ear))  # type: ignore[arg-type]
        await until(lambda: self.ear.kept)
        return self.ear

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.channel.close()


@pytest.mark.synapse
def test_what_is_said_is_heard_in_order_and_the_past_is_not(people: People) -> None:
    """CH-5, ADP-3: messages with what they are; edits, redactions and our own are told apart."""

    async def main() -> None:
        people.say("before we listened")
        people.enter(people.new("bob"), people.room.id)
        async with Listening(people.bot, people.server.url) as ear:
            first = people.say("one")
            people.say("* one!", **{"m.new_content": {}, "m.relates_to": {"rel_type": "m.replace", "event_id": first}})
            people.say("two", **{"m.mentions": {"user_ids": [people.bot.user_id]}})
            gone = people.say("three")
            people.redact(gone)
            thread = {"rel_type": "m.thread", "event_id": first, "is_falling_back": True}
            people.say("in a thread", **{"m.relates_to": {**thread, "m.in_reply_to": {"event_id": first}}})
            people.say("an answer", **{"m.relates_to": {"m.in_reply_to": {"event_id": first}}})
            people.say("ours", who=people.bot)
            await until(lambda: ear.texts[-1:] == ["ours"])
            heard = ear.heard
            ignored = [one.what for one in heard if isinstance(one, Ignored)]
            assert ignored[0] == "an edit" and "a redaction" in ignored
            told = {one.message.text: one for one in heard if isinstance(one, Incoming)}
            assert [text for text in ear.texts if text != "three"] == ["one", "two", "in a thread", "an answer", "ours"]
            assert [told[text].addressed for text in ("one", "two")] == [False, True]
            assert told["in a thread"].message.target.thread == first
            assert told["in a thread"].message.relation.reply_to is None  # type: ignore[union-attr]
            assert told["an answer"].message.relation.reply_to == first  # type: ignore[union-attr]
            assert told["one"].source.sender == people.ann.user_id
            assert told["ours"].own and not told["one"].own
            assert told["ours"].label is not None, "the device that sent it is told its transaction"
            assert told["one"].label is None

    asyncio.run(main())


@pytest.mark.synapse
def test_a_room_of_two_is_a_direct_chat_until_a_third_comes(people: People) -> None:
    """CH-5: and then whoever wants an answer mentions us."""

    async def main() -> None:
        async with Listening(people.bot, people.server.url) as ear:
            people.say("just us")
            await until(lambda: ear.texts == ["just us"])
            people.enter(people.new("bob"), people.room.id)
            people.say("with bob")
            await until(lambda: ear.texts == ["just us", "with bob"])
            first, second = (one for one in ear.heard if isinstance(one, Incoming))
            assert (first.source.kind, first.message.target.kind, first.addressed) == ("dm", "direct", True)
            assert (second.source.kind, second.message.target.kind, second.addressed) == ("group", "group", False)
            content = {people.ann.user_id: [people.room.id]}
            path = f"/_matrix/client/v3/user/{quote(people.bot.user_id, safe='')}/account_data/m.direct"
            people.server._call("PUT", path, content, people.bot)
            people.say("called direct")
            await until(lambda: ear.texts[-1] == "called direct")
            third = ear.heard[-1]
            assert isinstance(third, Incoming) and third.source.kind == "dm"

    asyncio.run(main())


@pytest.mark.synapse
def test_a_gap_is_read_from_the_history_and_another_room_is_not_replayed(people: People) -> None:
    """CH-5, SC-55: more than one answer holds was said while nobody listened, and we came into a room with a past."""

    async def main() -> None:
        async with Listening(people.bot, people.server.url) as ear:
            people.say("before")
            await until(lambda: ear.texts == ["before"])
        words = [f"while away {number:03}" for number in range(230)]
        for text in words:
            people.say(text)
        other = people.server.create_room(people.ann)
        for number in range(60):
            people.say(f"history {number}", other)
        people.enter(people.bot, other, people.ann)
        for number in range(60):
            people.say(f"new here {number:02}", other)
        small = people.server.create_room(people.ann)
        for number in range(3):
            people.say(f"history {number}", small)
        people.enter(people.bot, small, people.ann)
        people.say("small talk", small)
        async with Listening(people.bot, people.server.url, ear.kept) as again:
            await until(lambda: len(again.texts) >= 230 + 60 + 1)
            assert [text for text in again.texts if text.startswith("while")] == words
            assert [text for text in again.texts if text.startswith("new")] == [f"new here {n:02}" for n in range(60)]
            assert [text for text in again.texts if not text.startswith(("while", "new"))] == ["small talk"]

    asyncio.run(main())


@pytest.mark.synapse
def test_an_invitation_is_named_and_left_alone(people: People) -> None:
    """CH-5: it starts no turn; joining is the operator's business."""

    async def main() -> None:
        async with Listening(people.bot, people.server.url) as ear:
            room = people.server.create_room(people.ann)
            people.server.invite(people.ann, room, people.bot.user_id)
            await until(lambda: ear.events)
            [heard] = ear.heard
            assert isinstance(heard, Ignored) and "invitation" in heard.what
            assert ear._adapter.dedupe_key(ear.events[0]).startswith("msgledger.invite:")  # type: ignore[attr-defined]

    asyncio.run(main())


@pytest.mark.synapse
def test_everything_is_answered_once_over_lost_answers_and_restarts(people: People, tmp_path: Path) -> None:
    """CH-5, SC-55, SC-57, G10: the homeserver killed in between, the gateway away, syncs that never arrive."""
    heard: list[str] = []

    async def handler(inbound: Any) -> None:
        heard.append(inbound.message.text)
        await inbound.reply(f"re: {inbound.message.text}")

    def answered() -> list[str]:
        return [text for text in people.room.bodies() if text.startswith("re: ")]

    def theirs(incoming: Incoming) -> bool:
        return not incoming.own

    async def run(url: str, work: Callable[[], Any], many: int) -> None:
        made = channel_of(people.bot, url)
        async with msgledger.open(tmp_path / "ledger.db", [made], on_message=handler, authorize=theirs) as gateway:
            await until(lambda: made.ready)
            intake = gateway.intake("matrix")
            async with asyncio.timeout(PATIENCE_S):
                while await intake.cursor() is None:
                    await asyncio.sleep(0.02)
            await asyncio.to_thread(work)
            await until(lambda: len(answered()) == many)

    def say(*words: str) -> None:
        for text in words:
            people.say(text)

    def killed() -> None:
        say("three")
        people.server.kill()
        people.server.start()
        say("four", "five")

    with Proxy(people.server.port) as proxy:
        asyncio.run(run(proxy.url, lambda: say("one", "two"), 2))
        proxy.set(
            Rule(Fate.LOSE_ANSWER, method="GET", path="/sync", nth=2), Rule(Fate.LOSE_ANSWER, path="/sync", nth=3)
        )
        say("while away")
        asyncio.run(run(proxy.url, killed, 6))
    words = ["one", "two", "while away", "three", "four", "five"]
    assert heard == words
    assert answered() == [f"re: {text}" for text in words]


@pytest.mark.crabline
def test_a_second_server_is_heard_too(crabline: Crabline, crabline_room: Room) -> None:
    """CH-5: it knows no account data, and a room of two is direct there as well; lost answers lose nothing."""

    def say(text: str) -> None:
        crabline.say(crabline_room.id, text)

    async def main(proxy: Proxy) -> None:
        async with Listening(crabline_room.bot, proxy.url) as ear:
            say("one")
            await until(lambda: ear.texts == ["one"])
            proxy.set(Rule(Fate.LOSE_ANSWER, method="GET", path="/sync", nth=1))
            say("two")
            say("three")
            await until(lambda: ear.texts[-1] == "three")
            assert ear.texts == ["one", "two", "three"]
            first = ear.heard[0]
            assert isinstance(first, Incoming) and first.source.kind == "dm" and first.source.sender == SOMEBODY

    with Proxy(crabline.port) as proxy:
        asyncio.run(main(proxy))
