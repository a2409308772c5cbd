"""Long polling: nothing is lost, nothing is handed over twice, and the cursor passes nothing that is not done."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
from msgledger.adapters.exchange import Answer, Fault, Request
from msgledger.adapters.polling import Polling
from msgledger.adapters.receiving import Arrival, Event, Polled, Taken
from msgledger.ledger.errors import NotPossible, StoreLocked
from msgledger.ledger.limits import POLL_UNFINISHED_MAX
from msgledger.ledger.outcome import Rejected

PATIENCE_S = 10.0


class Adapter:
    """Updates with numbers; what is below the offset is forgotten."""

    poll_acknowledges = True

    def __init__(self, *numbers: int) -> None:
        self.waiting = list(numbers)
        self.asked: list[int] = []
        self.answers: list[Any] = []
        """What the next polls bring instead."""

    def poll(self, cursor: str | None, wait_s: float) -> Request:
        self.asked.append(int(cursor or 0))
        return Request("GET", f"/{cursor or 0}")

    def parse_poll(self, cursor: str | None, answer: Answer) -> Any:
        if self.answers:
            return self.answers.pop(0)
        if self.poll_acknowledges:
            self.waiting = [number for number in self.waiting if number >= int(cursor or 0)]
            return Polled(tuple(Arrival({"n": number}, str(number + 1)) for number in self.waiting))
        fresh = [number for number in self.waiting if number >= int(cursor or 0)]
        last = str(fresh[-1] + 1) if fresh else cursor
        return Polled(tuple(Arrival({"n": number}) for number in fresh), last)


class Ledger:
    """An intake that is told when each event is done."""

    policy = "after_durable_send"

    def __init__(self, cursor: str | None = None) -> None:
        self.taken: list[int] = []
        self.open: dict[int, asyncio.Future[None]] = {}
        self.advanced: list[str] = []
        self.at_once = False
        self.fails = 0
        self._cursor = cursor
        self._changed = asyncio.Event()

    def _maybe_fail(self) -> None:
        if self.fails:
            self.fails -= 1
            raise StoreLocked("somebody holds it")

    async def take(self, event: Event) -> Taken:
        self._maybe_fail()
        number = event["n"]
        self.taken.append(number)
        self._changed.set()
        future = self.open.get(number)
        if future is None or future.done():
            future = self.open[number] = asyncio.get_running_loop().create_future()
        if self.at_once:
            future.set_result(None)
        return Taken(inbound=str(number), reached=future.done(), done=asyncio.shield(future))

    async def cursor(self) -> str | None:
        self._maybe_fail()
        return self._cursor

    async def advance(self, cursor: str) -> None:
        self._maybe_fail()
        self.advanced.append(cursor)
        self._changed.set()

    async def until(self, done: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not done():
                self._changed.clear()
                await self._changed.wait()


class Run:
    """The driver at work, in time that goes by at once."""

    def __init__(self, adapter: Adapter, ledger: Ledger) -> None:
        self.slept: list[float] = []
        self.idle = asyncio.Event()
        self.adapter = adapter

        async def ask(request: Request, wait_s: float) -> Answer | Fault:
            if isinstance(adapter.answers[0] if adapter.answers else None, Fault):
                return adapter.answers.pop(0)
            if not adapter.waiting and not adapter.answers:
                self.idle.set()
                await asyncio.Event().wait()
            await asyncio.sleep(0)
            return Answer(200, {})

        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)
            await asyncio.sleep(0)

        self.polling = Polling(
            "plat/bot", adapter, lambda event: str(event["n"]), ask, ledger, chance=random.Random(7), sleep=sleep
        )

    async def __aenter__(self) -> Run:
        self.task = asyncio.create_task(self.polling.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def test_what_is_done_is_told_and_no_more() -> None:
    """WM-1, ACKK-2, SC-57: 5, 6 and 7 come, 5 and 7 are done: nothing beyond 5 is asked for, until 6 is done."""

    async def main() -> None:
        adapter, ledger = Adapter(5, 6, 7), Ledger()
        async with Run(adapter, ledger):
            await ledger.until(lambda: len(ledger.open) == 3)
            for number in (5, 7):
                ledger.open[number].set_result(None)
            await ledger.until(lambda: ledger.advanced == ["6"])
            await asyncio.sleep(0.05)
            assert max(adapter.asked) <= 6
            assert ledger.taken == [5, 6, 7], "what is known is not handed over again"
            ledger.open[6].set_result(None)
            await ledger.until(lambda: ledger.advanced == ["6", "8"])
            async with asyncio.timeout(PATIENCE_S):
                while adapter.waiting:
                    await asyncio.sleep(0.001)
        assert ledger.taken == [5, 6, 7]

    asyncio.run(main())


def test_it_begins_where_the_ledger_says() -> None:
    """SC-55: after a restart; None asks from where the platform has us."""

    async def main() -> None:
        for cursor, first in (("7", 7), (None, 0)):
            adapter, ledger = Adapter(8), Ledger(cursor)
            async with Run(adapter, ledger):
                await ledger.until(lambda ledger=ledger: ledger.taken)
            assert adapter.asked[0] == first

    asyncio.run(main())


def test_what_is_known_and_not_done_is_not_asked_for_in_a_spin() -> None:
    """ACKK-2: the platform repeats it at once, so the driver waits for news."""

    async def main() -> None:
        adapter, ledger = Adapter(5), Ledger()
        async with Run(adapter, ledger):
            await ledger.until(lambda: ledger.taken)
            await asyncio.sleep(0.3)
            assert len(adapter.asked) <= 3

    asyncio.run(main())


def test_an_event_is_handed_over_until_the_ledger_takes_it() -> None:
    """SC-59, G10: nothing is asked for meanwhile, and nothing is acknowledged."""

    async def main() -> None:
        adapter, ledger = Adapter(5, 6), Ledger()
        ledger.at_once = True
        ledger.fails = 4
        async with Run(adapter, ledger) as run:
            await ledger.until(lambda: "7" in ledger.advanced)
            assert ledger.taken == [5, 6]
            assert len(run.slept) == 4 and run.slept[3] > run.slept[0]

    asyncio.run(main())


def test_a_point_that_is_refused_is_waited_for_again() -> None:
    """ACKP-6: what the handler did not want acknowledged is handed over again, as a platform would."""

    async def main() -> None:
        adapter, ledger = Adapter(5), Ledger()
        async with Run(adapter, ledger):
            await ledger.until(lambda: ledger.taken == [5])
            ledger.open[5].set_exception(NotPossible("not yet"))
            await ledger.until(lambda: ledger.taken == [5, 5])
            assert ledger.advanced == []
            ledger.open[5].set_result(None)
            await ledger.until(lambda: ledger.advanced == ["6"])

    asyncio.run(main())


def test_a_platform_that_only_reads_is_polled_ahead() -> None:
    """WM-1: the durable cursor trails; a batch counts once all of it is done."""

    async def main() -> None:
        adapter, ledger = Adapter(1, 2), Ledger()
        adapter.poll_acknowledges = False
        async with Run(adapter, ledger):
            await ledger.until(lambda: ledger.taken == [1, 2])
            adapter.waiting.append(3)
            await ledger.until(lambda: ledger.taken == [1, 2, 3])
            ledger.open[3].set_result(None)
            ledger.open[1].set_result(None)
            await asyncio.sleep(0.02)
            assert ledger.advanced == []
            ledger.open[2].set_result(None)
            await ledger.until(lambda: ledger.advanced and ledger.advanced[-1] == "4")

    asyncio.run(main())


def test_polling_stops_where_too_much_is_open() -> None:
    """SC-59: memory stays bounded however slow the turns are."""

    async def main() -> None:
        adapter, ledger = Adapter(*range(POLL_UNFINISHED_MAX)), Ledger()
        adapter.poll_acknowledges = False
        async with Run(adapter, ledger):
            await ledger.until(lambda: len(ledger.taken) == POLL_UNFINISHED_MAX)
            polls = len(adapter.asked)
            adapter.waiting.append(POLL_UNFINISHED_MAX)
            await asyncio.sleep(0.05)
            assert (len(ledger.taken), len(adapter.asked)) == (POLL_UNFINISHED_MAX, polls)
            ledger.open[0].set_result(None)
            await ledger.until(lambda: len(ledger.taken) == POLL_UNFINISHED_MAX + 1)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("trouble", "pause"),
    [
        (Rejected("rate_limit", "slow down", retry_after_s=17.0), 17.0),
        (Rejected("auth", "who are you"), 60.0),
    ],
)
def test_a_refusal_is_waited_out_as_the_platform_says(trouble: Rejected, pause: float) -> None:
    """SC-57: and asked again; one line is logged."""

    async def main() -> None:
        adapter, ledger = Adapter(5), Ledger()
        adapter.answers = [trouble, trouble]
        async with Run(adapter, ledger) as run:
            await ledger.until(lambda: ledger.taken)
            assert run.slept == [pause, pause]

    asyncio.run(main())


def test_failures_are_waited_out_with_growing_random_pauses(caplog: pytest.LogCaptureFixture) -> None:
    """SC-57: a platform that cannot be reached; one line for each change."""
    caplog.set_level(logging.INFO, "msgledger")

    async def main() -> None:
        adapter, ledger = Adapter(5), Ledger()
        adapter.answers = [Fault("not_dispatched", "connection refused")] * 8
        async with Run(adapter, ledger) as run:
            await ledger.until(lambda: ledger.taken)
            assert len(run.slept) == 8
            assert all(0 <= pause <= min(60, 2**n) for n, pause in enumerate(run.slept))
            assert max(run.slept) > 4

    asyncio.run(main())
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[0] for line in lines] == [
        "plat/bot cannot be received from",
        "plat/bot is received from again",
    ]
