"""Polling: everything handed over once and in order, and the platform forgets nothing that is not done."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgledger.adapters.exchange import Answer, Fault
from msgledger.adapters.handover import Handover
from msgledger.ledger.errors import StoreFull, WriteUncertain
from msgledger.ledger.limits import POLL_PAUSE_S, POLL_REFUSED_S

from .driver_kit import LOCKED, Core, EagerClock, Plat, Running, polling, settle, until


@pytest.mark.parametrize("acknowledges", [True, False])
def test_what_comes_is_handed_over_in_order_and_forgotten_when_done(acknowledges: bool) -> None:
    """WM-1, ACKK-2: the cursor is behind what is done, and the next start begins there."""
    plat, core = Plat(acknowledges=acknowledges), Core()

    async def main() -> None:
        plat.say(5, 6, 7)
        async with Running(polling(plat, core).run()) as task:
            await until(lambda: core.kept == "8", task)
            plat.say(8)
            await until(lambda: core.kept == "9", task)
        again = core.restarted()
        async with Running(polling(plat, again).run()) as task:
            plat.say(9)
            await until(lambda: again.kept == "10", task)
        assert again.taken == [9]
        assert plat.asked[-2:] == ["9", "10"]

    asyncio.run(main())
    assert core.taken == [5, 6, 7, 8]


def test_nothing_is_asked_for_beyond_what_is_not_done() -> None:
    """WM-1, ACKK-2, SC-55: 5, 6 and 7 are under way and 6 is not done: the platform keeps 6 and 7, also over a
    restart."""
    plat, core = Plat(acknowledges=True), Core(at_once=False)

    async def main() -> None:
        plat.say(5, 6, 7)
        async with Running(polling(plat, core).run()) as task:
            await until(lambda: len(core.recorded) == 3, task)
            core.finish(7)
            core.finish(5)
            await until(lambda: core.kept == "6", task)
            await settle()
            assert plat.confirmed == 6
            assert plat.events == [6, 7]
        again = core.restarted()
        async with Running(polling(plat, again).run()) as task:
            await until(lambda: len(again.recorded) == 2, task)
            again.finish(6)
            await until(lambda: again.kept == "8", task)
            await until(lambda: plat.events == [], task)
        assert again.taken == [6, 7]

    asyncio.run(main())
    assert core.taken == [5, 6, 7]


def test_what_is_known_and_not_done_is_neither_handed_over_again_nor_asked_for_without_a_pause() -> None:
    """WM-1, SC-56: and what is new comes through meanwhile."""
    plat, core, clock = Plat(acknowledges=True), Core(at_once=False), EagerClock()

    async def main() -> None:
        plat.say(1)
        async with Running(polling(plat, core, clock).run()) as task:
            await until(lambda: len(plat.asked) >= 50, task)
            assert core.taken == [1]
            assert clock.waits.count(POLL_PAUSE_S) >= 48, "each of those polls waited first"
            plat.say(2)
            await until(lambda: 2 in core.recorded, task)
            core.finish(2)
            await settle()
            assert core.kept is None
            core.finish(1)
            await until(lambda: core.kept == "3", task)

    asyncio.run(main())
    assert core.taken == [1, 2]


def test_the_pause_ends_when_the_watermark_moves() -> None:
    """WM-1: nobody waits longer for the next message than it takes to finish the last."""
    plat, core, clock = Plat(acknowledges=True), Core(at_once=False), EagerClock()

    async def main() -> None:
        clock.held = asyncio.Event()
        plat.say(1)
        async with Running(polling(plat, core, clock).run()) as task:
            await until(lambda: 1 in core.recorded, task)
            await settle()
            assert len(plat.asked) == 1
            core.finish(1)
            await until(lambda: plat.asked[-1] == "2", task)

    asyncio.run(main())


def test_reading_ahead_has_a_bound() -> None:
    """SC-59: at the bound nothing more is asked for, and it goes on when one is done."""
    plat, core, clock = Plat(acknowledges=False, page=2), Core(at_once=False), EagerClock()

    async def main() -> None:
        clock.held = asyncio.Event()
        driver = polling(plat, core, clock)
        driver._arrivals = Handover(core, name="plat/a", clock=clock, chance=driver._chance, most=4)
        plat.say(*range(1, 11))
        async with Running(driver.run()) as task:
            await until(lambda: len(core.recorded) == 4, task)
            await settle()
            assert (core.taken, len(plat.asked)) == ([1, 2, 3, 4], 2)
            core.finish(3)
            await until(lambda: 5 in core.recorded, task)
            await settle()
            assert core.taken == [1, 2, 3, 4, 5]
            assert core.kept is None
            for number in range(1, 11):
                await until(lambda number=number: number in core.recorded, task)
                core.finish(number)
            await until(lambda: core.kept == "11", task)

    asyncio.run(main())
    assert core.taken == list(range(1, 11))


@pytest.mark.parametrize("acknowledges", [True, False])
def test_a_locked_ledger_loses_nothing_and_nothing_is_acknowledged_meanwhile(
    acknowledges: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """SC-59: the arrival is kept, what is behind it waits, and the log says it once."""
    plat, core, clock = Plat(acknowledges=acknowledges), Core(), EagerClock()

    async def main() -> None:
        with caplog.at_level(logging.INFO, "msgledger"):
            async with Running(polling(plat, core, clock).run()) as task:
                await until(lambda: plat.asked, task)
                core.fails = [StoreFull("no space"), *[LOCKED] * 30, WriteUncertain("who knows")]
                plat.say(1, 2, 3)
                await until(lambda: core.kept == "4", task)

    asyncio.run(main())
    assert core.taken.count(1) == 33
    assert [number for number in core.taken if number != 1] == [2, 3]
    assert sum(clock.waits) > 60, "it waits longer and longer"
    said = [record.getMessage() for record in caplog.records if "not written" in record.getMessage()]
    assert len(said) <= 4


def test_what_was_refused_is_offered_again() -> None:
    """RCV-4, ACKP-6: also where the platform would not deliver it again; the cursor waits."""
    for acknowledges in (True, False):
        plat, core = Plat(acknowledges=acknowledges), Core(at_once=False)

        async def main(plat: Plat = plat, core: Core = core) -> None:
            plat.say(1, 2)
            async with Running(polling(plat, core).run()) as task:
                await until(lambda: 2 in core.recorded, task)
                core.finish(2)
                core.refuse(1)
                await until(lambda: core.taken.count(1) == 2, task)
                assert core.kept is None
                core.finish(1)
                await until(lambda: core.kept == "3", task)

        asyncio.run(main())
        assert core.taken == [1, 2, 1]


def test_an_error_that_is_not_the_ledgers_stops_no_other_arrival() -> None:
    """RCV-4: it is offered again beside them, and the cursor does not pass it."""
    plat, core = Plat(acknowledges=True), Core()
    seen: list[Any] = []

    async def broken(name: str) -> None:
        if name == "take" and core.taken[-1] == 1 and len(seen) < 5:
            seen.append(core.kept)
            raise RuntimeError("the gateway's own rule broke")

    async def main() -> None:
        core.before = broken
        plat.say(1, 2, 3)
        async with Running(polling(plat, core).run()) as task:
            await until(lambda: core.kept == "4", task)

    asyncio.run(main())
    assert core.taken[:3] == [1, 2, 3]
    assert seen == [None] * 5


def test_the_platforms_troubles_are_waited_out_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """SC-59, RCV-1: with growing waits, as long as it asks for, slowly where only a person can help; without the
    body of what is not understood."""
    plat, core, clock = Plat(acknowledges=True), Core(), EagerClock()
    refused = Answer(401, {}, b"{}")
    plat.faults = [
        *[Fault("dispatched", "reset")] * 4,
        Answer(502, {}, b"<html>"),
        Answer(200, {}, b"not json"),
        Answer(200, {}, b'{"events": 7}'),
        Answer(429, {}, b"{}"),
        refused,
        refused,
        refused,
    ]

    async def main() -> None:
        plat.say(1)
        with caplog.at_level(logging.INFO, "msgledger"):
            async with Running(polling(plat, core, clock).run()) as task:
                await until(lambda: core.kept == "2", task)

    asyncio.run(main())
    assert max(clock.waits[:7]) < 60
    assert clock.waits[7] >= 17
    assert clock.waits[8:11] == [POLL_REFUSED_S] * 3
    said = [record.getMessage() for record in caplog.records if "polls" in record.getMessage()]
    assert [line.split("nothing comes: ")[-1] for line in said] == [
        "reset",
        "server_error 502",
        "malformed_answer 200",
        "rate_limit 429 (slow down)",
        "auth bad_token 401 (give another token)",
        "channel plat/a polls: well again",
    ]
    assert not any("<html>" in record.getMessage() for record in caplog.records)


def test_a_cursor_that_moves_without_arrivals_is_recorded_now_and_then() -> None:
    """SC-55: each poll that brings nothing would be an event of the ledger otherwise."""
    plat, core, clock = Plat(acknowledges=False), Core(), EagerClock()
    plat.faults = [Answer(200, {}, b'{"events": [], "next": "%d"}' % number) for number in range(10, 210)]

    async def ask(request: Any, deadline_s: float) -> Any:
        clock.now_ms += 30_000
        return await plat.ask(request, deadline_s)

    async def main() -> None:
        driver = polling(plat, core, clock)
        driver._ask = ask
        async with Running(driver.run()) as task:
            await until(lambda: not plat.faults and plat.idle, task)

    asyncio.run(main())
    assert plat.asked[-1] == "209"
    assert core.advanced == ["10", "130"]


def test_a_channel_that_is_not_ready_is_not_asked_for_its_cursor() -> None:
    """SC-57: which cursor it is depends on the credential that it will have."""
    plat, core, clock = Plat(acknowledges=True), Core(), EagerClock()
    ready: list[bool] = []

    async def main() -> None:
        plat.say(1)
        clock.held = asyncio.Event()
        async with Running(polling(plat, core, clock, ready=lambda: bool(ready)).run()) as task:
            await settle()
            assert (core.calls, plat.asked) == ({}, [])
            ready.append(True)
            clock.held.set()
            await until(lambda: core.kept == "2", task)

    asyncio.run(main())


def test_cursors_that_move_together_are_recorded_together() -> None:
    """WM-1: as soon as one is written, and not one by one."""
    plat, core = Plat(acknowledges=False), Core()
    gate = asyncio.Event()

    async def slow(name: str) -> None:
        if name == "advance":
            await gate.wait()

    async def main() -> None:
        core.before = slow
        plat.say(*range(1, 101))
        async with Running(polling(plat, core).run()) as task:
            await until(lambda: len(core.finished) == 100, task)
            await settle(300)
            gate.set()
            await until(lambda: core.kept == "101", task)

    asyncio.run(main())
    assert len(core.advanced) == 2


@settings(max_examples=60, deadline=None)
@given(
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(["say", "finish", "refuse", "locked", "restart", "reset"]), st.integers(0, 9))),
)
def test_whatever_happens_everything_is_handed_over_and_done(acknowledges: bool, moves: list[tuple[str, int]]) -> None:
    """SC-55, SC-56, SC-57, SC-59, WM-1: over restarts, a locked ledger, refusals and lost answers."""
    plat = Plat(acknowledges=acknowledges, page=3)
    said = 0
    cores = [Core(at_once=False)]

    async def main() -> None:
        nonlocal said
        moving = list(moves)
        while True:
            core = cores[-1]
            async with Running(polling(plat, core).run()) as task:
                while moving and moving[0][0] != "restart":
                    what, number = moving.pop(0)
                    open_ones = [one for one, future in core.recorded.items() if not future.done()]
                    if what == "say":
                        plat.say(said + 1)
                        said += 1
                    elif what == "finish" and open_ones:
                        core.finish(open_ones[number % len(open_ones)])
                    elif what == "refuse" and open_ones:
                        core.refuse(open_ones[number % len(open_ones)])
                    elif what == "locked":
                        core.fails += [LOCKED] * number
                    elif what == "reset":
                        plat.faults += [Fault("dispatched", "reset")] * number
                    await settle(number * 7)
                    left = [one for one in range(1, said + 1) if one not in core.finished]
                    assert int(core.kept or 0) <= min(left, default=said + 1), "the cursor ran ahead"
                    if acknowledges:
                        assert plat.confirmed <= min(left, default=said + 1), "the platform has forgotten one"
                if not moving:
                    while len(core.finished) < said:
                        await until(lambda core=core: any(not one.done() for one in core.recorded.values()), task)
                        for one, future in list(core.recorded.items()):
                            if not future.done():
                                core.finish(one)
                    break
            moving.pop(0)
            cores.append(core.restarted())

    asyncio.run(main())
    for core in cores:
        first = [number for index, number in enumerate(core.taken) if number not in core.taken[:index]]
        assert first == sorted(first), "for the first time they come in order"
