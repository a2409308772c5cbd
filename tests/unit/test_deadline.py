"""Deadlines over one timer behave as `asyncio.timeout` does, and cost no timer each."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from msgledger.adapters.deadline import Deadlines, deadlines, within


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 10))


async def late(after_s: float) -> float:
    """How long it took until the deadline ended a wait without end."""
    began = time.monotonic()
    with pytest.raises(TimeoutError), within(after_s):
        await asyncio.Event().wait()
    return time.monotonic() - began


def test_it_ends_what_takes_too_long_and_nothing_else() -> None:
    async def main() -> None:
        with within(5):
            await asyncio.sleep(0)
        assert await late(0.02) >= 0.02
        assert await late(0) < 1
        assert await late(-3) < 1
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0

    run(main())


def test_each_has_its_own_time_whatever_the_order_of_their_beginning() -> None:
    async def main() -> None:
        took = await asyncio.gather(*(late(after_s) for after_s in (0.3, 0.05, 0.2, 0.1, 0.05)))
        for after_s, found in zip((0.3, 0.05, 0.2, 0.1, 0.05), took, strict=True):
            assert after_s <= found < after_s + 0.15

    run(main())


def test_a_cancellation_from_outside_stays_one() -> None:
    async def main() -> None:
        task = asyncio.create_task(late(30))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        async def both_at_once() -> None:
            with within(5) as limit:
                limit._expire()
                task.cancel()
                await asyncio.Event().wait()

        task = asyncio.create_task(both_at_once())
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_the_inner_of_two_ends_first_and_alone() -> None:
    async def main() -> None:
        with within(5):
            assert await late(0.01) < 1
            await asyncio.sleep(0)

        ended: list[type[BaseException] | None] = []

        async def inner() -> None:
            with within(5):
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError as error:
                    ended.append(type(error))
                    raise

        with pytest.raises(TimeoutError), within(0.01):
            await inner()
        assert ended == [asyncio.CancelledError]

    run(main())


def test_many_share_one_timer_and_leave_nothing_behind() -> None:
    async def main() -> None:
        mine = deadlines()
        assert deadlines() is mine
        before = len(mine.loop._scheduled)  # type: ignore[attr-defined]
        tasks = [asyncio.create_task(late(60 + number)) for number in range(500)]
        await asyncio.sleep(0)
        assert len(mine._late) == 500
        assert len(mine.loop._scheduled) <= before + 1  # type: ignore[attr-defined]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not mine._late

    run(main())


def test_what_is_dropped_is_not_called() -> None:
    async def main() -> None:
        called: list[str] = []
        mine = Deadlines(asyncio.get_running_loop())
        mine.put("a", 0.01, lambda: called.append("a"))
        mine.put("b", 0.02, lambda: called.append("b"))
        mine.drop("a")
        mine.drop("never there")
        await asyncio.sleep(0.06)
        assert called == ["b"]

    run(main())


def test_each_event_loop_has_its_own() -> None:
    found: list[Deadlines] = []

    async def main() -> None:
        found.append(deadlines())
        assert await late(0.01) < 1

    run(main())
    run(main())
    assert found[0] is not found[1]


def test_event_loops_of_two_threads_keep_theirs() -> None:
    """G12: each has its one timer, however their sends take turns."""
    turn = threading.Barrier(2, timeout=30)
    kept: list[int] = []

    async def main() -> None:
        found: set[Deadlines] = set()
        for _ in range(5):
            turn.wait()
            found.add(deadlines())
        kept.append(len(found))

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept == [1, 1]
