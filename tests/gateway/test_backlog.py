"""A large backlog: worked off in bounded pages, paced, in order, at a cost that follows what is owed."""

from __future__ import annotations

import asyncio
from typing import Any

from msgledger import Status
from msgledger.ledger.limits import CLAIMS_PER_PASS, IN_FLIGHT_MAX

from .kit import Bench, backlog, text
from .platform import gated, hang


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
