"""Turns that end in odd ways, callers that go away, and settings that must hold under load."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from msgledger.ledger.errors import NotPossible, StoreFull, WriteUncertain
from msgledger.ledger.inbound import InboundStatus
from msgledger.ledger.store.history import events_of
from msgledger.lifecycle.inbound import turns as dispatcher
from msgledger.lifecycle.inbound.turns import load

from .inbound_kit import Agent, channel, soon, turns, update
from .kit import Bench


def test_a_handler_that_ends_in_a_cancelled_task_of_its_own_has_failed(bench: Bench) -> None:
    """RCV-4, OB-22: its worker lives, so it is no interruption: it runs again after a wait, and its session is not
    marked."""

    async def handler(inbound: Any) -> None:
        if inbound.attempt == 1:
            work = asyncio.ensure_future(asyncio.Event().wait())
            work.cancel()
            await work
        await inbound.reply("better now")

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler) as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            await bench.clock.settle()
            assert bench.last(taken.inbound, "InboundFailed")["error"] == "CancelledError"
            await bench.clock.until(lambda: bench.platform.texts, within_s=60)

    bench.run(main())
    assert "ResumeMarked" not in {event.type for event in bench.events()}


def test_a_time_limit_of_the_handlers_own_is_told_as_such(bench: Bench) -> None:
    """RCV-4: not as the limit of the turn."""

    async def handler(inbound: Any) -> None:
        raise TimeoutError

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler) as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            await bench.clock.settle()
            found = await gateway.store.read(events_of, taken.inbound)
            [failed] = [one.event for one in found if type(one.event).__name__ == "InboundFailed"]
            assert (failed.error, failed.content) == ("TimeoutError", None)

    bench.run(main())


def test_an_error_that_cannot_be_written_as_it_is_is_told_as_far_as_it_can(bench: Bench) -> None:
    """RCV-4, SC-60: a run that ends with it has failed, and is no interruption."""

    async def handler(inbound: Any) -> None:
        if inbound.attempt == 1:
            raise RuntimeError("half a sign: \ud800")
        await inbound.reply("better now")

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler) as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            await bench.clock.until(lambda: bench.platform.texts, within_s=60)
            assert bench.last(taken.inbound, "InboundFailed")["error"] == "RuntimeError"

    bench.run(main())


def test_no_more_turns_run_at_once_than_may(bench: Bench) -> None:
    """SC-59: also where all of them come in at the same moment."""
    running, most = 0, 0
    gate = asyncio.Event()

    async def handler(inbound: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler, turns_max=2) as gateway:
            await asyncio.gather(
                *(gateway.receive(update(number, chat=f"room-{number}"), channel="plat") for number in range(12))
            )
            await soon(bench, lambda: running == 2)
            gate.set()
            await soon(bench, lambda: all("InboundCompleted" in types for types in turns(bench).values()))

    bench.run(main())
    assert most == 2
    assert len(turns(bench)) == 12


def test_a_caller_that_goes_away_while_it_is_recorded_takes_nothing_with_it(bench: Bench) -> None:
    """RCV-4, SC-58: the turn begins at once, as its first run."""
    agent = Agent()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            append, handed_in = gateway.store.append, asyncio.Event()

            def told(*items: Any) -> Any:
                handed_in.set()
                return append(*items)

            gateway.store.append = told
            task = asyncio.create_task(gateway.receive(update(1), channel="plat"))
            await handed_in.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await bench.clock.settle()
            await soon(bench, lambda: bench.platform.texts)

    bench.run(main())
    assert agent.runs == [("hello there", 1)]
    assert turns(bench)["in-1"] == ["InboundRecorded", "Acknowledged", "InboundDispatched", "InboundCompleted"]


def test_an_end_whose_commit_is_uncertain_is_asked_for_and_told(bench: Bench) -> None:
    """SC-59, ACKP-3: the handler does not run again, and who waits for the acknowledgement hears of it."""
    agent = Agent()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent, ack="after_durable_send") as gateway:
            append, spoiled = gateway.store.append, []

            def uncertain(*items: Any) -> Any:
                done = append(*items)
                if spoiled or not any(type(one).__name__ == "InboundCompleted" for one in items[0].events):
                    return done
                spoiled.append(True)

                async def lost() -> Any:
                    await done
                    raise WriteUncertain("the disk went away")

                return asyncio.ensure_future(lost())

            gateway.store.append = uncertain
            taken = await gateway.receive(update(1), channel="plat")
            bench.clock.free = True
            task = asyncio.ensure_future(_done(taken))
            await soon(bench, task.done)
            await task
            assert spoiled

    bench.run(main())
    assert agent.runs == [("hello there", 1)]


async def _done(taken: Any) -> None:
    await taken.done


def test_what_nobody_waits_for_is_not_kept(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """ACKP-4, SC-59: a handler that forgets to acknowledge costs a warning, and no memory."""
    caplog.set_level(logging.WARNING, "msgledger")

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=Agent(), ack="manual") as gateway:
            for number in range(5):
                await gateway.receive(update(number), channel="plat")
            await bench.clock.settle()
            assert gateway._receiving.acks.streams() == []

    bench.run(main())


def test_what_speaks_to_nobody_is_acknowledged_without_a_handler(bench: Bench) -> None:
    """RCV-6, ACKP-4: no turn could acknowledge it by hand; a polling offset would never pass it."""

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=Agent(), ack="manual") as gateway:
            assert (await gateway.receive(update(1, addressed=False), channel="plat")).reached

    bench.run(main())


@pytest.mark.parametrize("jump_s", [86_400, -86_400], ids=["forward", "back"])
def test_a_jump_of_the_wall_clock_keeps_no_turn_waiting(bench: Bench, jump_s: float) -> None:
    """RCV-4: neither one that waits for its conversation, nor one that waits to run again."""
    agent = Agent()

    async def main() -> None:
        agent.gate, agent.fails = asyncio.Event(), [RuntimeError("first")]
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            await gateway.receive(update(1, "text 1"), channel="plat")
            await gateway.receive(update(2, "text 2"), channel="plat")
            await agent.begun.wait()
            agent.gate.set()
            await bench.clock.settle()
            bench.clock.jump(jump_s)
            await bench.clock.until(lambda: len(bench.platform.texts) == 2, within_s=120)

    bench.run(main())
    assert bench.platform.texts == ["re: text 1", "re: text 2"]


def test_a_receiver_that_ends_in_a_cancelled_task_of_its_own_is_started_again(bench: Bench) -> None:
    """SC-59: as after any other error."""
    starts: list[int] = []

    async def receive(intake: Any) -> None:
        starts.append(len(starts))
        if len(starts) == 1:
            work = asyncio.ensure_future(asyncio.Event().wait())
            work.cancel()
            await work
        await asyncio.Event().wait()

    async def main() -> None:
        plat = channel(bench)
        plat.receive = receive
        async with bench.gateway(plat, on_message=Agent()):
            await bench.clock.until(lambda: len(starts) == 2, within_s=10)

    bench.run(main())


def test_a_refusal_counts_also_where_the_handler_then_raises(bench: Bench) -> None:
    """ACKP-6: the platform is told at once, and not only after the next run."""

    async def handler(inbound: Any) -> None:
        if inbound.attempt == 1:
            inbound.nack("not now")
            raise RuntimeError("and this")
        await inbound.reply("now")

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler, ack="after_durable_send") as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            with pytest.raises(NotPossible, match="not now"):
                async with asyncio.timeout(5):
                    await taken.done
            await bench.clock.until(lambda: bench.platform.texts, within_s=60)

    bench.run(main())


def test_others_that_write_much_are_asked_one_look_at_a_time(bench: Bench) -> None:
    """SC-59: what waits for an acknowledgement is looked for once more, however often they write meanwhile."""

    async def main() -> None:
        async with bench.gateway(channel(bench)) as gateway:
            taken = [
                await gateway.receive(update(number, chat=f"room-{number}"), channel="plat", ack="manual")
                for number in range(20)
            ]
            read, reads = gateway.store.read, []

            def counted(work: Any, *arguments: Any) -> Any:
                if work is load:
                    reads.append(arguments)
                return read(work, *arguments)

            gateway.store.read = counted
            for _ in range(50):
                gateway._receiving.news()
            await bench.clock.settle()
            assert len(reads) == len(taken)

    bench.run(main())


def test_a_turn_whose_lock_was_lost_cannot_end_that_of_another(bench: Bench) -> None:
    """SC-49: a block that acknowledges by hand meanwhile does not learn the other run from that."""

    async def main() -> None:
        zombie = bench.gateway(channel(bench))
        await zombie.start()
        async with zombie.receiving(update(1), channel="plat", ack="manual") as inbound:
            zombie._owner.release()  # everybody else takes it for dead
            other = Agent()
            other.gate = asyncio.Event()
            async with bench.gateway(channel(bench), on_message=other, seed=8) as gateway:
                await soon(bench, lambda: other.runs)
                await inbound.ack()
                assert gateway.store.state_of(inbound.id).runs == 2
                inbound.fail("too late")
                await zombie._receiving._ended(inbound)
                assert gateway.store.state_of(inbound.id).status is InboundStatus.RUNNING
                other.gate.set()
                await soon(bench, lambda: "InboundCompleted" in bench.types(inbound.id))
        await zombie.close()

    bench.run(main())
    assert bench.platform.texts == ["re: hello there"]
    assert "InboundFailed" in turns(bench)["in-1"]
    assert turns(bench)["in-1"].count("InboundFailed") == 1


def test_a_handler_cancelled_by_the_close_runs_again_at_the_next_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SC-49, RCV-4, OB-22: what it had answered stands; the close is bounded."""
    monkeypatch.setattr(dispatcher, "CLOSE_WAIT_S", 0.05)
    runs: list[int] = []

    async def handler(inbound: Any) -> None:
        runs.append(inbound.attempt)
        await inbound.reply(f"answer of run {inbound.attempt}")
        if inbound.attempt == 1:
            await asyncio.Event().wait()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler) as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            await soon(bench, lambda: bench.platform.texts)
        assert bench.types(taken.inbound)[-1] == "InboundDispatched"
        async with bench.gateway(channel(bench), on_message=handler):
            await bench.clock.until(lambda: "InboundCompleted" in bench.types(taken.inbound), within_s=30)

    bench.run(main())
    assert runs == [1, 2]
    assert bench.platform.texts == ["answer of run 1"]


@pytest.mark.parametrize("durability", ["best_effort", "disabled"])
def test_a_turn_may_send_what_the_ledger_does_not_owe(bench: Bench, durability: Any) -> None:
    """ACKP-3: then its end names only what the ledger owes."""

    async def handler(inbound: Any) -> None:
        first = await inbound.reply("by itself", durability=durability)
        second = await inbound.reply("owed")
        assert (first.durable, second.durable) == (durability == "best_effort", True)

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler) as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            await bench.clock.settle()
            owed = bench.last(taken.inbound, "InboundCompleted")["intents"]
            assert len(owed) == (2 if durability == "best_effort" else 1)

    bench.run(main())
    assert sorted(bench.platform.texts) == ["by itself", "owed"]


@pytest.mark.parametrize("step", ["_append", "read"])
def test_a_ledger_that_fails_in_the_dispatcher_costs_time_and_nothing_else(bench: Bench, step: str) -> None:
    """SC-59: full, at each step of taking a turn over; afterwards it goes on by itself."""
    agent = Agent()

    async def main() -> None:
        gateway = bench.gateway(channel(bench))
        await gateway.start()
        for number in range(3):
            await gateway.receive(update(number, f"text {number}"), channel="plat")
        await gateway.kill()
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            owner = gateway.turns if step == "_append" else gateway.store
            works, left = getattr(owner, step), [3]

            def full(*arguments: Any, **more: Any) -> Any:
                if left[0]:
                    left[0] -= 1
                    raise StoreFull("no space left")
                return works(*arguments, **more)

            setattr(owner, step, full)
            await bench.clock.until(lambda: len(bench.platform.texts) == 3, within_s=120)

    bench.run(main())
    assert [text for text, _ in agent.runs] == ["text 0", "text 1", "text 2"]
