"""The echo gate: our own messages and other gateways' failures start no turn, and people are always heard."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgledger import BotPolicy, Message, Origin, Unknown
from msgledger.adapters import calls

from .echo_kit import Bot, Room, drops, talk
from .inbound_kit import Agent, soon
from .kit import Bench, TestGateway, text

FAILED = "Something went wrong before I could answer. Please try again in a while; I am sorry."
UNBOUND = BotPolicy(pair_turns=None, fuse_turns_per_minute=None)
UNITS = 3
"""What that becomes in a room that takes 60 characters."""
FAILURE = Origin.gateway_failure("agent_failed_before_reply")


def a_failure(inbound: Any, words: str = FAILED, origin: Origin = FAILURE) -> Message:
    return Message.text(words, to=inbound.message.target, origin=origin)


class Failing:
    """A handler whose agent always fails, and which says so."""

    def __init__(self, origin: Origin = FAILURE) -> None:
        self.origin = origin
        self.heard: list[str] = []

    async def __call__(self, inbound: Any) -> None:
        self.heard.append(inbound.message.text)
        await inbound.reply(a_failure(inbound, origin=self.origin))


@pytest.fixture
def second(tmp_path: Path, bench: Bench) -> Bench:
    """Another gateway's ledger, in the same time."""
    other = Bench(tmp_path)
    other.path, other.clock = tmp_path / "second.db", bench.clock
    return other


class TestFailures:
    def test_they_are_seen_by_people_and_left_alone_by_bots(self, bench: Bench, second: Bench) -> None:
        """ECHO-4, AC-14, ECHO-2, SC-61: each unit becomes visible; the other bot's rule is never asked about them."""
        room = Room()
        one, two = Bot(room, "bot-one"), Bot(room, "bot-two")
        failing, agent, asked = Failing(), Agent(), []

        def authorize(incoming: Any) -> bool:
            asked.append(incoming.message.text)
            return True

        async def main() -> None:
            async with (
                bench.gateway(one.channel(), on_message=failing) as first,
                second.gateway(two.channel(), on_message=agent, authorize=authorize) as other,
            ):
                pairs = [(one, first), (two, other)]
                room.say("hello")
                two.hears.get_nowait()
                assert await talk(bench, pairs, rounds=9) < 9

        bench.run(main())
        assert room.count("bot-one") == UNITS, "each of them visible"
        assert asked == []
        assert agent.texts == []
        assert drops(second) == [("echo", "agent_failed_before_reply")] * UNITS

    def test_two_that_fail_do_not_tell_each_other(self, bench: Bench, second: Bench) -> None:
        """SC-61, ECHO-1, AC-14: one failure each for the person, and silence; untagged, they go on and on."""

        async def main(room: Room, origin: Origin, rounds: int) -> int:
            one, two = Bot(room, "bot-one"), Bot(room, "bot-two")
            async with (
                bench.gateway(one.channel(), on_message=Failing(origin), bots=UNBOUND) as first,
                second.gateway(two.channel(), on_message=Failing(origin), bots=UNBOUND) as other,
            ):
                room.say("hello")
                return await talk(bench, [(one, first), (two, other)], rounds=rounds)

        tagged, untagged = Room("room-tagged"), Room("room-untagged")
        assert bench.run(main(tagged, FAILURE, 9)) == 2
        assert [tagged.count("bot-one"), tagged.count("bot-two")] == [UNITS, UNITS]
        assert bench.run(main(untagged, Origin(), 3)) == 3
        assert untagged.count("bot-one") > UNITS

    def test_the_untagged_twin_takes_the_usual_way(self, bench: Bench) -> None:
        """ECHO-3: the same words without the tag, in a direct chat, or from a person, are asked about and answered."""
        room, agent, asked = Room(), Agent(), []
        bot = Bot(room, "bot-one")
        tag = FAILURE.tag()

        def authorize(incoming: Any) -> bool:
            asked.append((incoming.message.text, incoming.source.is_bot))
            return not incoming.source.is_bot

        async def main() -> None:
            async with bench.gateway(bot.channel(), on_message=agent, authorize=authorize) as gateway:
                room.say(FAILED, "bot-two", bot=True, tag=tag)
                room.say(FAILED, "bot-two", bot=True)
                room.say(FAILED, "bot-two", bot=True, tag={**(tag or {}), "version": 2})
                room.say(FAILED, "bot-two", bot=True, tag=tag, kind="dm", room="chat-77")
                room.say(FAILED, "person-ann", tag=tag)
                await bot.hear(gateway)
                await bench.clock.settle()

        bench.run(main())
        assert asked == [(FAILED, True)] * 3 + [(FAILED, False)]
        assert drops(bench) == [("echo", "agent_failed_before_reply"), *[("unauthorised", None)] * 3]
        assert agent.texts == [FAILED]

    def test_an_adapter_cannot_change_the_decision(self, bench: Bench) -> None:
        """ORG-4, ADP-4: it says what stands in the event, before anything is judged; what it says more is not heard."""
        room, order = Room(), []
        bot = Bot(room, "bot-one")
        channel: Any = bot.channel()
        decoding, normalizing = channel.decode_origin, channel.normalize

        def decode(event: Any) -> Any:
            order.append("decode")
            return decoding(event)

        def normalize(event: Any) -> Any:
            order.append("normalize")
            return normalizing(event)

        channel.decode_origin, channel.normalize = decode, normalize
        channel.is_echo = channel.drop = lambda *_: False

        async def main() -> None:
            async with bench.gateway(channel, on_message=Agent(), authorize=lambda _: order.append("authorize")) as it:
                room.say("tagged", "bot-two", bot=True, tag=FAILURE.tag())
                room.say("not tagged", "bot-two", bot=True)
                await bot.hear(it)

        bench.run(main())
        assert order == ["normalize", "decode", "normalize", "decode", "authorize"]
        assert [reason for reason, _ in drops(bench)] == ["echo", "unauthorised"]

    def test_what_a_tag_says_is_kept(self, bench: Bench) -> None:
        """ORG-2, ORG-1: known ones stand among the facts, others are content, whole, and the handler sees them."""
        room, seen = Room(), []
        bot = Bot(room, "bot-one")
        strange = {"source": "somebody-else", "version": 7, "note": "private words"}

        async def handler(inbound: Any) -> None:
            seen.append(inbound.message.origin)
            await inbound.reply(a_failure(inbound, "passed on", inbound.message.origin))

        async def main() -> None:
            async with bench.gateway(bot.channel(), on_message=handler) as gateway:
                room.say("a", tag=strange)
                room.say("b", "bot-two", bot=True, tag=Origin.external_bot().tag())
                await bot.hear(gateway)
                await bench.clock.settle()

        bench.run(main())
        assert seen == [Origin(opaque=strange), Origin.external_bot()]
        assert [event["tag"] for event in room.said[2:]] == [strange, Origin.external_bot().tag()]
        facts = [one.data for one in bench.events() if one.type in ("InboundRecorded", "IntentRecorded")]
        contents = [fact.pop("content") for fact in facts]
        origins = [fact.get("origin") for fact in facts]
        assert origins.count(None) == origins.count({"source": "external_bot"}) == 2
        assert "private words" not in str(facts)
        assert contents[0]["message"]["origin"]["opaque"] == strange


class TestOrigin:
    def test_every_unit_is_tagged_after_a_kill(self, bench: Bench) -> None:
        """ORG-5, TU-9: split, stored, recovered by another process: each unit has the origin, the marked copy too."""
        room = Room()
        bot = Bot(room, "bot-one")
        hanging = asyncio.Event()

        async def first_hangs(event: Any) -> Any:
            if len(room.said) == 1:
                hanging.set()
                await asyncio.Event().wait()

        async def main() -> None:
            room.before_answer = first_hangs
            gateway = bench.gateway(bot.channel())
            await gateway.start()
            words = " ".join(f"word{number}" for number in range(30))
            message = Message.text(words, to=text("x").target, origin=FAILURE)
            delivery = await gateway.send(message, on_unknown="at_least_once", timeout_s=0.05)
            await hanging.wait()
            await gateway.kill()
            async with bench.gateway(bot.channel()) as gateway:
                await bench.clock.until(lambda: len(room.said) > 5, within_s=600, step_s=5)
                kept = await gateway.intent(delivery.intent)
                assert kept.message is not None and kept.message.origin == FAILURE

        bench.run(main())
        assert room.texts[1].startswith("[possible duplicate]")
        assert [event["tag"] for event in room.said] == [FAILURE.tag()] * len(room.said)

    def test_origin_and_relation_stand_apart(self, bench: Bench) -> None:
        """ORG-1: two columns, two fields; an answer that is operational output is both."""
        room = Room()
        bot = Bot(room, "bot-one")

        async def main() -> None:
            async with bench.gateway(bot.channel(), on_message=Failing()) as gateway:
                room.say("hello")
                await bot.hear(gateway)
                await bench.clock.settle()

        bench.run(main())
        assert bench.query("SELECT relation, origin FROM intents") == [("reply", "gateway")]
        [recorded] = [one.data for one in bench.events() if one.type == "IntentRecorded"]
        assert recorded["relation"] == "reply"
        assert recorded["origin"] == {
            "source": "gateway",
            **{n: v for n, v in (FAILURE.tag() or {}).items() if n != "version"},
        }


class TestOwn:
    @pytest.mark.parametrize("how", ["own", "labels", "receipt"])
    def test_our_own_message_starts_no_turn(self, bench: Bench, how: str) -> None:
        """ECHO-5, SC-62: by the platform's word, by the label that we gave it, or by its id; also after a restart."""
        room = Room(echoes=True)
        room.own, room.labels, room.tags = how == "own", how == "labels", False
        bot, agent = Bot(room, "bot-one"), Agent()

        async def main() -> None:
            async with bench.gateway(bot.channel(), on_message=agent) as gateway:
                await gateway.send(text("unasked"))
            async with bench.gateway(bot.channel(), on_message=agent) as gateway:
                room.say("hello")
                assert await talk(bench, [(bot, gateway)], rounds=9) == 2

        bench.run(main())
        assert agent.texts == ["hello"]
        assert room.texts == ["unasked", "hello", "re: hello"]
        assert drops(bench) == [("own", None)] * 2

    @pytest.mark.parametrize("how", ["own", "labels"])
    def test_the_platforms_word_needs_no_receipt(self, bench: Bench, how: str) -> None:
        """ECHO-5, SC-62: an id that no receipt has, other words; a label of somebody else's intent says nothing."""
        room, agent = Room(), Agent()
        room.own, room.labels = how == "own", how == "labels"
        bot = Bot(room, "bot-one")

        async def main() -> None:
            async with bench.gateway(bot.channel(), on_message=agent) as gateway:
                await gateway.send(text("unasked"))
                known = {**room.said[0], "id": "m98", "text": "changed by the platform"}
                await gateway.receive(known, channel="plat")
                if how == "labels":
                    foreign = calls.provider_key("0192abcd-0000-7000-8000-0123456789ab", 0, 0)
                    await gateway.receive({**known, "id": "m99", "key": foreign, "text": "foreign"}, channel="plat")
                await bench.clock.settle()

        bench.run(main())
        assert drops(bench) == [("own", None)]
        assert agent.texts == (["foreign"] if how == "labels" else [])

    def test_every_unit_of_a_long_message_is_ours(self, bench: Bench) -> None:
        """ECHO-5, RCP-3: the registry has all ids, not the primary one alone."""
        room = Room(echoes=True)
        room.tags = False
        bot, agent = Bot(room, "bot-one"), Agent()

        async def main() -> None:
            async with bench.gateway(bot.channel(), on_message=agent) as gateway:
                await gateway.send(text(" ".join(f"word{number}" for number in range(30))))
                await talk(bench, [(bot, gateway)], rounds=3)

        bench.run(main())
        assert len(room.said) > 3
        assert agent.texts == []
        assert len(drops(bench)) == len(room.said)

    def test_an_id_is_ours_in_its_place_account_and_time(self, bench: Bench) -> None:
        """ECHO-5, SC-62: the same id elsewhere, of another account, or long afterwards, is somebody else's message."""
        room = Room()
        room.tags = False
        bot, other, agent = Bot(room, "bot-one", echo_horizon_s=600.0), Bot(room, "bot-two"), Agent()

        async def main() -> None:
            async with bench.gateway(bot.channel(), other.channel(), on_message=agent) as gateway:
                sent = await gateway.send(Message.text("ours", to=text("x").target, account="bot-one"))
                [id] = sent.receipt.platform_ids
                event = {**room.said[0], "from": "person-ann", "bot": False, "text": "theirs"}
                assert event["id"] == id
                await gateway.receive({**event, "room": "another"}, channel="plat", account="bot-one")
                await gateway.receive(event, channel="plat", account="bot-two")
                await bench.clock.settle()
                assert (agent.texts, drops(bench)) == (["theirs"] * 2, [])
                await bench.clock.advance(590)
                await gateway.receive(event, channel="plat", account="bot-one")
                await bench.clock.settle()
                assert (agent.texts, drops(bench)) == (["theirs"] * 2, [("own", None)])
                await bench.clock.advance(20)
                await gateway.receive({**event, "again": 1}, channel="plat", account="bot-one")
                await bench.clock.settle()
                assert (agent.texts, drops(bench)) == (["theirs"] * 3, [("own", None)])

        bench.run(main())


def test_a_label_names_its_intent() -> None:
    """ECHO-5: of any unit, plan and marked copy; what is no key of ours is nobody's."""
    intent = "0192abcd-0000-7000-8000-0123456789ab"
    for key in (
        calls.provider_key(intent, 0, 0),
        calls.provider_key(intent, 3, 99),
        calls.provider_key(intent, 0, 1, 2),
    ):
        assert calls.intent_of(key) == intent
    for other in ("", "m1", intent, "0" * 31, "g" * 36, calls.provider_key(intent, 0, 0) + "x"):
        assert calls.intent_of(other) is None


def told_when_it_waits(gateway: TestGateway) -> asyncio.Event:
    """Set once somebody wants to hear of the next commit, as the gate does before it waits."""
    listen, waits = gateway.store.on_commit, asyncio.Event()

    def on_commit(listener: Any) -> Any:
        waits.set()
        return listen(listener)

    gateway.store.on_commit = on_commit  # type: ignore[method-assign]
    return waits


class TestRace:
    """SC-62, ECHO-5: the echo is here before our own send knows its id."""

    @pytest.mark.parametrize("bot_flag", [True, False])
    def test_the_receipt_is_waited_for(self, bench: Bench, bot_flag: bool) -> None:
        """SC-62: equal words with a request on its way wait for its receipt, whoever seems to have written them."""
        room = Room()
        room.tags = False
        bot, agent = Bot(room, "bot-one"), Agent()
        answer = asyncio.Event()

        async def later(event: Any) -> None:
            await answer.wait()

        async def main() -> None:
            room.before_answer = later
            async with bench.gateway(bot.channel(), on_message=agent) as gateway:
                sending = asyncio.ensure_future(gateway.send(text("words in flight")))
                while not room.said:
                    await asyncio.sleep(0.001)
                event = {**room.said[0], "bot": bot_flag}
                waits = told_when_it_waits(gateway)
                taking = asyncio.ensure_future(gateway.receive(event, channel="plat"))
                async with asyncio.timeout(20):
                    await waits.wait()
                assert not taking.done()
                answer.set()
                await taking
                await sending
                await bench.clock.settle()

        bench.run(main())
        assert agent.texts == []
        assert drops(bench) == [("own", None)]

    def test_a_person_who_says_the_same_is_heard(self, bench: Bench) -> None:
        """SC-62, SC-63: their message has another id, and the wait has an end although our request has none."""
        room, agent = Room(), Agent()
        room.tags = False
        bot = Bot(room, "bot-one")

        async def never(event: Any) -> None:
            if event["text"] == "ok":
                await asyncio.Event().wait()

        async def main() -> None:
            room.before_answer = never
            gateway = bench.gateway(bot.channel(), on_message=agent)
            await gateway.start()
            await gateway.send(text("ok"), timeout_s=0.05)
            waits = told_when_it_waits(gateway)
            taking = asyncio.ensure_future(gateway.receive(room.say("ok"), channel="plat"))
            async with asyncio.timeout(20):
                await waits.wait()
            await soon(bench, lambda: agent.texts)
            assert taking.done()
            await gateway.kill()

        bench.run(main())
        assert agent.texts == ["ok"]
        assert drops(bench) == []

    @pytest.mark.parametrize(("who", "heard"), [("bot-one", []), (None, []), ("person-ann", ["lost"])])
    def test_an_unknown_outcome_decides_about_bots_and_the_nameless(
        self, bench: Bench, who: str | None, heard: list[str]
    ) -> None:
        """SC-62: no receipt will come; the words decide, but never about a person."""
        room, texts = Room(), list[str]()
        room.tags = False
        bot = Bot(room, "bot-one")

        async def noting(inbound: Any) -> None:
            texts.append(inbound.message.text)

        async def loses(event: Any) -> Any:
            return Unknown("timeout") if event["text"] == "lost" else None

        async def main() -> None:
            room.before_answer = loses
            async with bench.gateway(bot.channel(), on_message=noting) as gateway:
                await gateway.send(text("lost"))
                event = {**room.said[0], "from": who, "bot": who == "bot-one"}
                await gateway.receive(event, channel="plat")
                await bench.clock.settle()
                await gateway.receive({**room.said[0], "id": "m99", "text": "different words"}, channel="plat")
                await bench.clock.settle()

        bench.run(main())
        assert texts == [*heard, "different words"]
        assert drops(bench) == ([] if heard else [("own", "same_words")])
