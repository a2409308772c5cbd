"""Turns in blocks of the caller's own: repetitions, cancellation, errors on the way in, and what stands before them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgledger.ledger.errors import StoreLocked

from .inbound_kit import Agent, channel, soon, turns, update
from .kit import Bench


def test_a_repetition_does_not_take_the_turn_from_the_block_that_runs_it(bench: Bench) -> None:
    """F19, RCV-5: also where the gateway has a handler that would run what nobody runs."""
    agent = Agent()
    skipped: list[str | None] = []

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            async with gateway.receiving(update(1), channel="plat") as inbound:
                for _ in range(2):
                    async with gateway.receiving(update(1), channel="plat") as again:
                        skipped.append(again.skipped)
                        await again.reply("a second answer")
                bench.clock.free = True
                await bench.clock.advance(70)
                bench.clock.free = False
                await inbound.reply("the answer")
            await bench.clock.settle()

    bench.run(main())
    assert skipped == ["repeated", "repeated"]
    assert agent.runs == []
    assert bench.platform.texts == ["the answer"]


def test_a_block_that_was_cancelled_runs_again_when_the_event_comes_again(bench: Bench) -> None:
    """RCV-4: as one that raised; nobody runs it meanwhile."""

    async def main() -> None:
        async with bench.gateway(channel(bench, ack_policy="after_durable_send")) as gateway:
            begun = asyncio.Event()

            async def cut_off() -> None:
                async with gateway.receiving(update(1), channel="plat"):
                    begun.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(cut_off())
            await begun.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            async with gateway.receiving(update(1), channel="plat") as inbound:
                assert inbound.skipped is None
                await inbound.reply("now")

    bench.run(main())
    assert bench.platform.texts == ["now"]


def test_a_block_that_could_not_begin_leaves_its_turn_to_the_next(bench: Bench) -> None:
    """SC-59, RCV-4: the ledger cannot be read right after the record; the turn is nobody's, and runs again."""

    async def main() -> None:
        async with bench.gateway(channel(bench, ack_policy="after_durable_send")) as gateway:
            router = gateway._receiving._router
            context, router.context = router.context, _locked
            with pytest.raises(StoreLocked):
                async with gateway.receiving(update(1), channel="plat"):
                    raise AssertionError("the block must not begin")
            router.context = context
            async with gateway.receiving(update(1), channel="plat") as inbound:
                assert inbound.skipped is None
                await inbound.reply("now")

    bench.run(main())
    assert bench.platform.texts == ["now"]


async def _locked(*_: object) -> Any:
    raise StoreLocked("somebody holds it")


def test_what_nothing_runs_again_is_held_and_its_conversation_goes_on(bench: Bench) -> None:
    """RCV-4, SC-56: acknowledged, so that it does not come again, and no handler: a person decides."""

    async def main() -> None:
        async with bench.gateway(channel(bench)) as gateway:
            with pytest.raises(RuntimeError):
                async with gateway.receiving(update(1), channel="plat") as first:
                    raise RuntimeError("no model")
            async with asyncio.timeout(5), gateway.receiving(update(2), channel="plat") as inbound:
                await inbound.reply("to the second")
            assert gateway.store.state_of(first.id).hold == "attempts"

    bench.run(main())
    assert bench.platform.texts == ["to the second"]


def test_a_block_does_not_wait_for_ever_behind_one_whose_process_died(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """RCV-4, SC-49: nothing runs it again here; it is held for a person after a while, and that is said."""

    async def main() -> None:
        dying = bench.gateway(channel(bench))
        await dying.start()
        block = dying.receiving(update(1), channel="plat")
        first = await block.__aenter__()
        await dying.kill()
        async with bench.gateway(channel(bench)) as gateway:

            async def second() -> None:
                async with gateway.receiving(update(2), channel="plat") as inbound:
                    await inbound.reply("to the second")

            task = asyncio.create_task(second())
            await soon(bench, lambda: bench.platform.texts)
            await task
            assert gateway.store.state_of(first.id).hold == "attempts"

    bench.run(main())
    assert bench.platform.texts == ["to the second"]
    assert "inbound retry" in caplog.text


def test_a_block_waits_as_long_as_a_living_one_takes(bench: Bench) -> None:
    """SC-33: minutes are no reason to hold what somebody works on."""

    async def main() -> None:
        async with bench.gateway(channel(bench)) as one, bench.gateway(channel(bench), seed=8) as other:

            async def second() -> None:
                async with other.receiving(update(2), channel="plat") as inbound:
                    await inbound.reply("to the second")

            async with one.receiving(update(1), channel="plat") as inbound:
                task = asyncio.create_task(second())
                bench.clock.free = True
                await bench.clock.advance(300)
                bench.clock.free = False
                assert bench.types(inbound.id)[-1] == "InboundDispatched"
                await inbound.reply("to the first")
            await soon(bench, lambda: len(bench.platform.texts) == 2)
            await task

    bench.run(main())
    assert bench.platform.texts == ["to the first", "to the second"]


def test_a_skipped_block_ends_quietly_also_from_within_a_group_of_tasks(bench: Bench) -> None:
    """RCV-5: the first use may stand in a `TaskGroup`, which wraps what it meets."""

    async def main() -> None:
        async with bench.gateway(channel(bench)) as gateway:
            for _ in range(2):
                async with gateway.receiving(update(1), channel="plat") as inbound, asyncio.TaskGroup() as group:
                    group.create_task(inbound.reply(f"re: {inbound.message.text}"))

    bench.run(main())
    assert bench.platform.texts == ["re: hello there"]


def test_closing_lets_a_block_end(bench: Bench) -> None:
    """RCV-1: what runs when the gateway closes may still answer; nothing new begins."""

    async def main() -> None:
        gateway = bench.gateway(channel(bench))
        await gateway.start()
        begun, gate = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            async with gateway.receiving(update(1), channel="plat") as inbound:
                begun.set()
                await gate.wait()
                await inbound.reply("in time")

        task = asyncio.create_task(work())
        await begun.wait()
        closing = asyncio.create_task(gateway.close())
        while gateway._store is not None:
            await asyncio.sleep(0)
        gate.set()
        await task
        await closing

    bench.run(main())
    assert turns(bench)["in-1"][-1] == "InboundCompleted"
    assert bench.platform.texts == ["in time"]
