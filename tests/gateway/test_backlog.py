"""A large backlog: worked off in bounded pages, paced, in order, at a cost that follows what is owed."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from msgledger import NotSent, Status
from msgledger.ledger.limits import CLAIMS_PER_PASS, IN_FLIGHT_MAX, PROBE_AFTER_FAILURES

from .kit import Bench, backlog, text
from .platform import drop, gated, hang, refuse


class Highest(random.Random):
    """Every wait is the longest."""

    def random(self) -> float:
        return 0.999


def in_order(bench: Bench) -> bool:
    by_place: dict[str, list[str]] = {}
    for one in bench.platform.visible:
        by_place.setdefault(one.place, []).append(one.text)
    return all(texts == sorted(texts) for texts in by_place.values())


def test_a_backlog_is_worked_off_in_bounded_pages_and_in_order(bench: Bench) -> None:
    """REC-1, REC-9, SC-21, SC-24, OB-16, OB-21, G6, G7: 600 in 200 lanes; never more loaded or in flight than named."""
    loaded: list[int] = []
    flying: list[int] = []

    async def main() -> None:
        await backlog(bench, 600, 200)
        async with bench.gateway() as gateway:
            assert len(await gateway.owed(limit=1000)) == 600
            dispatcher = gateway.dispatcher
            real = dispatcher.due.load

            def load(cursor: Any, ready: Any) -> Any:
                loaded.append(len(ready))
                flying.append(len(dispatcher.busy))
                return real(cursor, ready)

            dispatcher.due.load = load
            await bench.clock.until(lambda: len(bench.platform.texts) == 600, within_s=600)
            await bench.clock.settle()
            assert await gateway.owed() == []
        assert max(loaded) <= CLAIMS_PER_PASS
        assert max(flying) <= IN_FLIGHT_MAX
        assert in_order(bench)
        assert len(set(bench.platform.texts)) == 600

    bench.run(main())


def test_no_more_than_the_bound_is_in_flight(bench: Bench) -> None:
    """SC-24: with a platform that answers nobody, the rest waits in the ledger."""

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.rule = gated(gate)
        await backlog(bench, IN_FLIGHT_MAX + 40, IN_FLIGHT_MAX + 40)
        bench.clock.free = True
        async with bench.gateway() as gateway:
            for _ in range(200):
                await bench.clock.advance(0.1)
                if len(bench.platform.requests) >= IN_FLIGHT_MAX:
                    break
            await bench.clock.advance(1)
            assert len(bench.platform.requests) == IN_FLIGHT_MAX
            gate.set()
            bench.clock.free = False
            await bench.clock.until(lambda: len(bench.platform.texts) == IN_FLIGHT_MAX + 40, within_s=60)
            assert gateway.dispatcher.busy == {}

    bench.run(main())


def test_no_more_than_the_bound_is_claimed_at_once(bench: Bench) -> None:
    """SC-24: live messages that come all together wait in the ledger too."""

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.rule = gated(gate)
        many = range(IN_FLIGHT_MAX + 40)
        async with bench.gateway() as gateway:
            await bench.clock.settle()
            await asyncio.gather(*(gateway.send(text("x", f"room-{n:04}"), wait=False) for n in many))
            bench.clock.free = True
            await bench.clock.advance(1)
            assert len(bench.platform.requests) == IN_FLIGHT_MAX
            gate.set()
            bench.clock.free = False
            await bench.clock.until(lambda: len(bench.platform.texts) == len(many), within_s=60)

    bench.run(main())


def test_a_channel_that_comes_back_is_probed_by_one_of_many_at_once(bench: Bench) -> None:
    """SC-24: the next live messages do not all go out before the first has its answer."""

    async def main() -> None:
        bench.platform.rule = refuse
        async with bench.gateway(chance=Highest()) as gateway:
            await bench.clock.settle()
            for number in range(PROBE_AFTER_FAILURES):
                await gateway.send(text("down", f"room-{number}"), max_age_s=0.001)
            line = gateway.dispatcher.gate.line(("plat", "default"))
            assert line.unreached == PROBE_AFTER_FAILURES
            line.closed_until = 0
            gate = asyncio.Event()
            bench.platform.rule = gated(gate)
            before = len(bench.platform.requests)
            await asyncio.gather(*(gateway.send(text("x", f"room-1{n:03}"), wait=False) for n in range(20)))
            bench.clock.free = True
            await bench.clock.advance(1)
            assert len(bench.platform.requests) == before + 1
            gate.set()
            bench.clock.free = False
            await bench.clock.until(lambda: len(bench.platform.texts) == 20, within_s=60)

    bench.run(main())


def test_no_more_than_the_bound_is_looked_up_at_once(bench: Bench) -> None:
    """SC-24, REC-1: an outage that left very many unknown outcomes."""
    asked: list[str] = []
    gate = asyncio.Event()

    async def look(unit: Any, context: Any) -> Any:
        asked.append(context.intent)
        await gate.wait()
        return NotSent()

    async def main() -> None:
        many = range(IN_FLIGHT_MAX + 40)
        bench.platform.looks_up = True
        bench.platform.rule = drop()
        async with bench.gateway(bench.platform.channel(deadline_s=60.0), chance=Highest()) as gateway:
            await asyncio.gather(*(gateway.send(text("x", f"room-{n:04}"), timeout_s=20) for n in many))
            bench.platform.rule = None
        bench.platform._look_up = look  # type: ignore[method-assign]
        bench.clock.free = True
        async with bench.gateway(bench.platform.channel(deadline_s=60.0)) as gateway:
            for _ in range(50):
                await bench.clock.advance(1)
                if len(asked) >= IN_FLIGHT_MAX:
                    break
            await bench.clock.advance(2)
            assert len(asked) == len(gateway.dispatcher.busy) == IN_FLIGHT_MAX
            gate.set()

    bench.run(main())


def test_a_backlog_is_paced_by_account(bench: Bench) -> None:
    """SC-25: redelivery takes its time, within the pace that the channel names; a live message does not wait."""

    async def main() -> None:
        await backlog(bench, 10, 10)
        began = bench.clock.boot_ms()
        async with bench.gateway(bench.platform.channel(per_second=2.0)) as gateway:
            await bench.clock.advance(1)
            assert (await gateway.send(text("live", "room-live"))).status is Status.SENT
            await bench.clock.until(lambda: len(bench.platform.texts) == 11, within_s=60)
        at = sorted(one.at - began for one in bench.platform.visible if one.text != "live")
        assert at[-1] >= 4_000
        assert all(sum(start <= other < start + 1_000 for other in at) <= 4 for start in at)

    bench.run(main())


def test_a_stuck_channel_with_many_lanes_leaves_room_for_the_others(bench: Bench) -> None:
    """REC-10, SC-24: however many of its lanes wait for an answer, another channel's messages go out, old and new."""

    async def main() -> None:
        stuck = bench.other("stuck")
        stuck.rule = hang
        channels = stuck.channel(deadline_s=60), bench.platform.channel()
        stuck.ready = bench.platform.ready = False
        async with bench.gateway(*channels) as gateway:
            many = [gateway.send(text("x", f"room-{n:04}", "stuck"), wait=False) for n in range(IN_FLIGHT_MAX + 40)]
            await asyncio.gather(*many)
            await gateway.send(text("old"), wait=False)
        stuck.ready = bench.platform.ready = True
        bench.clock.free = True
        gateway = bench.gateway(*channels)
        await gateway.start()
        for _ in range(100):
            await bench.clock.advance(0.1)
            if bench.platform.texts:
                break
        new = await gateway.send(text("new"), timeout_s=1)
        assert new.status is Status.SENT
        assert bench.platform.texts == ["old", "new"]
        await gateway.kill()

    bench.run(main())
