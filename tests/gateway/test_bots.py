"""Bots that answer each other: the budget of a pair, and the fuse of a place. People are never cut off."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from msgledger import BotPolicy, Origin, System, SystemReason
from msgledger.ledger.errors import InvalidConfig
from msgledger.projections import echoes

from .echo_kit import Bot, Room, drops, talk
from .inbound_kit import Agent
from .kit import Bench, text

UNBOUND = BotPolicy(pair_turns=None, fuse_turns_per_minute=None)
ANN, BOB = "person-ann", "person-bob"


@pytest.fixture
def second(tmp_path: Path, bench: Bench) -> Bench:
    """Another gateway's ledger, in the same time."""
    other = Bench(tmp_path)
    other.path, other.clock = tmp_path / "second.db", bench.clock
    return other


async def loop(bench: Bench, second: Bench, room: Room, policy: BotPolicy, rounds: int) -> int:
    """Two bots that answer whatever they hear, and one word of a person."""
    one, two = Bot(room, "bot-one"), Bot(room, "bot-two")
    async with (
        bench.gateway(one.channel(), on_message=Agent(), bots=policy) as first,
        second.gateway(two.channel(), on_message=Agent(), bots=policy) as other,
    ):
        room.say("hello")
        return await talk(bench, [(one, first), (two, other)], rounds=rounds)


class TestPairs:
    def test_two_bots_come_to_rest(self, bench: Bench, second: Bench) -> None:
        """SC-61: with the budget they stop at it; without it they go on for as long as one looks."""
        bounded, endless = Room("room-bounded"), Room("room-endless")
        policy = BotPolicy(pair_turns=5, fuse_turns_per_minute=None)
        assert bench.run(loop(bench, second, bounded, policy, 40)) < 10
        assert {bounded.count("bot-one"), bounded.count("bot-two")} <= {5, 6}
        assert set(drops(bench) + drops(second)) == {("pair_budget", "5 in 3600 s")}
        assert bench.run(loop(bench, second, endless, UNBOUND, 15)) == 15

    def test_the_count_is_in_the_ledger(self, bench: Bench) -> None:
        """SC-61: a restart gives nobody a new budget."""
        room, agent = Room(), Agent()
        bot = Bot(room, "bot-one")

        async def main() -> None:
            for _ in range(4):
                async with bench.gateway(bot.channel(), on_message=agent, bots=BotPolicy(pair_turns=3)) as gateway:
                    room.say("again", "bot-two", bot=True)
                    await bot.hear(gateway)
                    await bench.clock.settle()

        bench.run(main())
        assert agent.texts == ["again"] * 3
        assert drops(bench) == [("pair_budget", "3 in 3600 s")]

    def test_a_person_in_between_sets_it_back(self, bench: Bench) -> None:
        """SC-61: also where what they say is not spoken to us; people are never counted themselves."""
        room, agent = Room(), Agent()
        bot = Bot(room, "bot-one")

        async def main() -> None:
            async with bench.gateway(bot.channel(), on_message=agent, bots=BotPolicy(pair_turns=2)) as gateway:
                for who in ["bot-two"] * 3 + [ANN] * 9 + ["bot-two"] * 3:
                    room.say(f"of {who}", who, bot=who.startswith("bot"))
                room.say("to somebody else", BOB, addressed=False)
                room.say("once more", "bot-two", bot=True)
                await bot.hear(gateway)
                await bench.clock.settle()

        bench.run(main())
        assert agent.texts == [*["of bot-two"] * 2, *[f"of {ANN}"] * 9, *["of bot-two"] * 2, "once more"]
        assert [reason for reason, _ in drops(bench)] == ["pair_budget"] * 2

    def test_it_is_of_one_bot_in_one_place_within_its_time(self, bench: Bench) -> None:
        """SC-61: another bot, another place and an hour later have their own; what starts no turn costs nothing."""
        room, agent = Room(), Agent()
        bot = Bot(room, "bot-one")

        async def main() -> None:
            policy = BotPolicy(pair_turns=1, pair_window_s=600.0)
            async with bench.gateway(bot.channel(), on_message=agent, bots=policy) as gateway:
                room.say("overheard", "bot-two", bot=True, addressed=False)
                room.say("first", "bot-two", bot=True)
                room.say("too much", "bot-two", bot=True)
                room.say("overheard", "bot-two", bot=True, addressed=False)
                room.say("another bot", "bot-three", bot=True)
                room.say("elsewhere", "bot-two", bot=True, room="room-two")
                await bot.hear(gateway)
                await bench.clock.advance(601)
                room.say("later", "bot-two", bot=True)
                await bot.hear(gateway)
                await bench.clock.settle()

        bench.run(main())
        assert sorted(agent.texts) == sorted(["first", "another bot", "elsewhere", "later"])
        assert [reason for reason, _ in drops(bench)] == ["pair_budget"]

    def test_who_is_not_authorised_uses_nothing_up(self, bench: Bench) -> None:
        """SC-61, ECHO-2: what the gateway's own rule refused is no turn."""
        room, agent, wanted = Room(), Agent(), [False] * 5 + [True] * 2
        bot = Bot(room, "bot-one")

        async def main() -> None:
            async with bench.gateway(
                bot.channel(), on_message=agent, bots=BotPolicy(pair_turns=1), authorize=lambda _: wanted.pop(0)
            ) as gateway:
                for number in range(7):
                    room.say(f"number {number}", "bot-two", bot=True)
                await bot.hear(gateway)
                await bench.clock.settle()

        bench.run(main())
        assert agent.texts == ["number 5"]
        assert [reason for reason, _ in drops(bench)] == ["unauthorised"] * 5 + ["pair_budget"]

    def test_a_wrong_policy_is_refused_at_open(self, bench: Bench) -> None:
        """SC-61: with its name and value."""

        async def main() -> None:
            with pytest.raises(InvalidConfig, match="pair_turns is -1"):
                async with bench.gateway(bots=BotPolicy(pair_turns=-1)):
                    pass

        bench.run(main())


class TestFuse:
    def test_a_flood_blows_it_and_it_mends_itself(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        """SC-63: said once in the log; people go through all the while; once the flood is over, bots do too."""
        caplog.set_level(logging.INFO, "msgledger")
        room, agent = Room(), Agent()
        bot = Bot(room, "bot-one")

        async def main() -> None:
            policy = BotPolicy(pair_turns=None, fuse_turns_per_minute=10)
            async with bench.gateway(bot.channel(), on_message=agent, bots=policy) as gateway:
                for number in range(100):
                    room.say(f"mirrored {number}", f"mirror-{number % 7}", bot=True)
                    await bot.hear(gateway)
                    await bench.clock.advance(1)
                    if number % 10 == 0:
                        room.say("do you hear me?", ANN)
                room.say("elsewhere", "mirror-1", bot=True, room="room-two")
                await bot.hear(gateway)
                await bench.clock.advance(61)
                room.say("calm again", "mirror-1", bot=True)
                await bot.hear(gateway)
                await bench.clock.settle()

        bench.run(main())
        assert agent.texts.count("do you hear me?") == 10
        assert [one for one in agent.texts if one.startswith("mirrored")] == [f"mirrored {n}" for n in range(10)]
        assert agent.texts[-2:] == ["elsewhere", "calm again"]
        assert {reason for reason, _ in drops(bench)} == {"fuse"}
        lines = [
            record.getMessage()
            for record in caplog.records
            if "fuse" in record.getMessage() and "inbound" not in record.getMessage()
        ]
        assert len(lines) == 2
        assert "its fuse is blown" in lines[0] and "whole again" in lines[1]

    def test_a_flood_of_people_blows_nothing(self, bench: Bench) -> None:
        """SC-63: whatever the bound."""
        room, agent = Room(), Agent()
        bot = Bot(room, "bot-one")

        async def main() -> None:
            policy = BotPolicy(pair_turns=0, fuse_turns_per_minute=0)
            async with bench.gateway(bot.channel(), on_message=agent, bots=policy) as gateway:
                for number in range(50):
                    room.say(f"number {number}")
                room.say("a bot", "bot-two", bot=True)
                await bot.hear(gateway)
                await bench.clock.settle()

        bench.run(main())
        assert agent.texts == [f"number {number}" for number in range(50)]
        assert [reason for reason, _ in drops(bench)] == ["fuse"]

    def test_a_systems_output_is_no_input(self, bench: Bench, second: Bench) -> None:
        """SC-63: what the system says by itself goes out as such, people see it, and no bot takes it as a task."""
        room, agent = Room(), Agent()
        one, two = Bot(room, "bot-one"), Bot(room, "bot-two")

        async def main() -> None:
            async with (
                bench.gateway(one.channel()) as first,
                second.gateway(two.channel(), on_message=agent) as other,
            ):
                await first.send(text("the job is done", relation=System(SystemReason.CRON)))
                await first.send(text("said by an agent", relation=System(SystemReason.CRON), origin=Origin.user()))
                await two.hear(other)
                await bench.clock.settle()

        bench.run(main())
        assert room.texts[:2] == ["the job is done", "said by an agent"]
        assert agent.texts == ["said by an agent"]
        assert drops(second) == [("echo", "system")]


@pytest.mark.parametrize("query", ["ON_THEIR_WAY", "BY_BOTS", "LAST_PERSON"])
def test_no_read_grows_with_the_history(bench: Bench, query: str) -> None:
    """SC-61, SC-62, SC-63: each goes over an index of what is open, or of the place."""

    async def main() -> None:
        async with bench.gateway():
            pass

    bench.run(main())
    asked: str = getattr(echoes, query)
    plan = [row[3] for row in bench.query(f"EXPLAIN QUERY PLAN {asked}", *["x"] * asked.count("?"))]
    reads = [line for line in plan if "intents" in line or "inbound" in line]
    wanted: dict[str, Any] = {
        "ON_THEIR_WAY": ["intents_in_flight", "intents_seldom (status=?)"],
        "BY_BOTS": ["inbound_spoken (place=? AND bot=?)"],
        "LAST_PERSON": ["inbound_spoken (place=? AND bot=?)"],
    }[query]
    assert len(reads) == len(wanted), plan
    assert all(any(index in line for line in reads) for index in wanted), plan
    assert "USE TEMP B-TREE" not in " ".join(plan) or query == "ON_THEIR_WAY"
