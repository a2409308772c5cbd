"""Receiving: recorded before it is acknowledged, dispatched once, answered once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgledger.ledger.inbound import InboundStatus

from .inbound_kit import DONE, Agent, channel, turns, update
from .kit import Bench
from .platform import lose


def test_a_message_is_recorded_handled_answered_and_done(bench: Bench) -> None:
    """RCV-1, RCV-2, ACKP-2: and what it led to stands in its end."""
    agent = Agent()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            await taken.done
            await bench.clock.settle()
            assert turns(bench) == {"in-1": DONE}
            [intent] = await gateway.intents(inbound=taken.inbound)
            assert bench.last(taken.inbound, "InboundCompleted")["intents"] == [intent.id]

    bench.run(main())
    assert bench.platform.texts == ["re: hello there"]
    [one] = bench.platform.visible
    assert (one.place, one.reply_to) == ("room-4711", "in-1")


def test_the_same_event_twice_is_dispatched_once(bench: Bench) -> None:
    """RCV-3, G10: at once, after it is done, and after a restart."""
    agent = Agent()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            both = await asyncio.gather(*(gateway.receive(update(1), channel="plat") for _ in range(5)))
            assert sorted(one.repeated for one in both) == [False, True, True, True, True]
            assert len({one.inbound for one in both}) == 1
            await bench.clock.settle()
            assert (await gateway.receive(update(1), channel="plat")).repeated
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            again = await gateway.receive(update(1), channel="plat")
            await again.done
            assert again.repeated
            await bench.clock.settle()

    bench.run(main())
    assert agent.texts == ["hello there"]
    assert bench.platform.texts == ["re: hello there"]


def test_what_was_recorded_and_not_done_runs_again_after_a_kill(bench: Bench) -> None:
    """RCV-4, OB-22: in order, and the answer that stood is not given twice."""
    agent = Agent()

    async def main() -> None:
        agent.gate = asyncio.Event()
        gateway = bench.gateway(channel(bench), on_message=agent)
        await gateway.start()
        for number in (1, 2, 3):
            await gateway.receive(update(number, f"text {number}"), channel="plat")
        await agent.begun.wait()
        await gateway.kill()
        agent.gate = None
        async with bench.gateway(channel(bench), on_message=agent):
            await bench.clock.until(lambda: len(bench.platform.texts) == 3, within_s=30)
            await bench.clock.settle()

    bench.run(main())
    assert agent.runs == [("text 1", 1), ("text 1", 2), ("text 2", 1), ("text 3", 1)]
    assert bench.platform.texts == ["re: text 1", "re: text 2", "re: text 3"]


def test_a_turn_that_runs_again_gets_the_answer_that_stands(bench: Bench) -> None:
    """OB-22, SC-49: the first content counts, whatever the agent says the second time."""
    said: list[bool] = []

    async def handler(inbound: Any) -> None:
        delivery = await inbound.reply(f"answer of run {inbound.attempt}")
        said.append(delivery.repeated)
        if inbound.attempt == 1:
            raise RuntimeError("after the answer")

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler) as gateway:
            await gateway.receive(update(1), channel="plat")
            await bench.clock.until(lambda: len(said) == 2, within_s=60)
            await bench.clock.settle()

    bench.run(main())
    assert said == [False, True]
    assert bench.platform.texts == ["answer of run 1"]


def test_a_poison_message_is_held_and_its_lane_goes_on(bench: Bench) -> None:
    """RCV-4, SC-56: with backoff between its runs; the others of its lane are answered, others never waited."""

    async def handler(inbound: Any) -> None:
        if inbound.message.text == "poison":
            raise ValueError("cannot")
        await inbound.reply(f"re: {inbound.message.text}")

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler) as gateway:
            poison = await gateway.receive(update(1, "poison"), channel="plat")
            await gateway.receive(update(2, "behind"), channel="plat")
            await gateway.receive(update(3, "elsewhere", chat="room-two"), channel="plat")
            await bench.clock.settle()
            assert bench.platform.texts == ["re: elsewhere"]
            await bench.clock.until(lambda: len(bench.platform.texts) == 2, within_s=3_600, step_s=10)
            state = gateway.store.state_of(poison.inbound)
            assert (state.status, state.hold, state.runs) == (InboundStatus.PENDING, "attempts", 5)

    bench.run(main())


def test_a_block_is_one_turn(bench: Bench) -> None:
    """RCV-1, ACKP-3: the README's code; acknowledged when the answer is owed."""

    async def main() -> None:
        async with bench.gateway(channel(bench, ack_policy="after_durable_send")) as gateway:
            async with gateway.receiving(update(1), channel="plat") as inbound:
                assert bench.types(inbound.id) == ["InboundRecorded", "InboundDispatched"]
                await inbound.reply(f"re: {inbound.message.text}")
            assert bench.types(inbound.id)[2:] == ["InboundCompleted", "Acknowledged"]

    bench.run(main())
    assert bench.platform.texts == ["re: hello there"]


def test_a_block_for_a_repetition_ends_at_the_first_use(bench: Bench) -> None:
    """RCV-3, RCV-5: quietly, and nothing after it runs; the reason may be asked."""
    reached: list[str] = []

    async def main() -> None:
        async with bench.gateway(channel(bench)) as gateway:
            for _ in range(2):
                async with gateway.receiving(update(1), channel="plat") as inbound:
                    reached.append(f"before, {inbound.skipped}")
                    try:
                        text = inbound.message.text
                    except Exception:
                        reached.append("an Exception")
                    reached.append("after")
                    await inbound.reply(text)
            assert inbound.skipped == "repeated"

    bench.run(main())
    assert reached == ["before, None", "after", "before, repeated"]
    assert bench.platform.texts == ["hello there"]


def test_a_block_that_raises_runs_again_when_the_event_comes_again(bench: Bench) -> None:
    """RCV-4, ACKP-3: it was not acknowledged, and the error gets out."""

    async def main() -> None:
        async with bench.gateway(channel(bench, ack_policy="after_durable_send")) as gateway:
            with pytest.raises(RuntimeError, match="no model"):
                async with gateway.receiving(update(1), channel="plat") as inbound:
                    raise RuntimeError("no model")
            assert "Acknowledged" not in bench.types(inbound.id)
            async with gateway.receiving(update(1), channel="plat") as inbound:
                assert inbound.attempt == 2
                await inbound.reply("better now")
            assert bench.types(inbound.id)[-2:] == ["InboundCompleted", "Acknowledged"]

    bench.run(main())
    assert bench.platform.texts == ["better now"]


def test_an_answer_whose_fate_is_unknown_still_ends_its_turn(bench: Bench) -> None:
    """ACKP-3: the ledger owes it from here on."""
    bench.platform.plan(lose())
    agent = Agent()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            taken = await gateway.receive(update(1), channel="plat", ack="after_durable_send")
            await asyncio.wait_for(asyncio.ensure_future(_done(taken)), 5)
            assert bench.types(taken.inbound)[-2:] == ["InboundCompleted", "Acknowledged"]

    bench.run(main())


async def _done(taken: Any) -> None:
    await taken.done
