"""What the tests of the drivers share: a core in memory, a clock that nobody waits for, a platform that is polled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgledger.adapters.exchange import Answer, Fault, Request, without_class
from msgledger.adapters.polling import Polling
from msgledger.adapters.receiving import Arrival, Polled, Taken
from msgledger.ledger.errors import NotPossible, StoreLocked
from msgledger.ledger.outcome import FailureClass, Rejected, Unknown

PATIENCE_S = 20.0
"""How long a test waits for the machine before it is said to hang."""


class EagerClock:
    """Time goes on by itself whenever somebody waits for it, and it costs nothing. `waits` is what was waited for."""

    boot_id = "boot-1"

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000
        self.waits: list[float] = []
        self.held: asyncio.Event | None = None
        """While it is there and not set, no wait ends by time."""

    def wall_ms(self) -> int:
        return self.now_ms

    def boot_ms(self) -> int:
        return self.now_ms

    async def wait(self, event: asyncio.Event, timeout_s: float) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
            if event.is_set():
                return
        self.waits.append(timeout_s)
        if self.held is not None:
            waiting = [asyncio.ensure_future(one.wait()) for one in (self.held, event)]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waiting:
                    one.cancel()
            if event.is_set():
                return
        self.now_ms += max(1, int(timeout_s * 1000))


class Core:
    """An intake: it keeps what was taken, and is told when a turn is done."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.at_once = at_once
        """Done as soon as it is recorded."""
        self.policy = "after_record" if at_once else "after_durable_send"
        self.taken: list[Any] = []
        """The number of every event that was handed over, in order, repetitions too."""
        self.recorded: dict[Any, asyncio.Future[None]] = {}
        self.finished: set[Any] = set()
        self.advanced: list[str] = []
        self.kept: str | None = None
        self.fails: list[BaseException] = []
        """What the next calls raise."""
        self.calls: dict[str, int] = {}
        self.before: Callable[[str], Awaitable[None]] | None = None

    async def take(self, event: Mapping[str, Any]) -> Taken:
        number = event["n"]
        self.taken.append(number)
        await self._called("take")
        repeated = number in self.recorded
        future = self.recorded.get(number)
        if future is None or (future.done() and future.exception() is not None):
            future = self.recorded[number] = asyncio.get_running_loop().create_future()
            if self.at_once or number in self.finished:
                self.finish(number)
        reached = future.done() and future.exception() is None
        return Taken(inbound=f"stream-{number}", repeated=repeated, reached=reached, done=_Done(future))

    async def cursor(self) -> str | None:
        await self._called("cursor")
        return self.kept

    async def advance(self, cursor: str) -> None:
        await self._called("advance")
        self.advanced.append(cursor)
        self.kept = cursor

    def finish(self, number: Any) -> None:
        self.finished.add(number)
        if not self.recorded[number].done():
            self.recorded[number].set_result(None)

    def refuse(self, number: Any) -> None:
        future = self.recorded[number]
        future.set_exception(NotPossible("refused"))
        future.exception()

    def restarted(self) -> Core:
        """What the ledger knows after the process died: what is recorded, what is done, and the cursor."""
        again = Core(at_once=self.at_once)
        again.finished, again.kept = set(self.finished), self.kept
        return again

    async def _called(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        if self.before is not None:
            await self.before(name)
        await asyncio.sleep(0)
        if self.fails:
            raise self.fails.pop(0)


class _Done:
    def __init__(self, future: asyncio.Future[None]) -> None:
        self._future = future

    def __await__(self) -> Any:
        return asyncio.shield(self._future).__await__()


LOCKED = StoreLocked("somebody holds it")


class Plat:
    """A platform that is polled, and its adapter: numbered events, forgotten when they are asked beyond, or never."""

    def __init__(self, *, acknowledges: bool, page: int = 100) -> None:
        self.poll_acknowledges = acknowledges
        self.page = page
        self.events: list[int] = []
        self.asked: list[str | None] = []
        self.confirmed = 0
        """Events below it are forgotten, where asking is acknowledging."""
        self.faults: list[Answer | Fault] = []
        self.came = asyncio.Event()
        self.idle = 0
        """Polls that brought nothing."""

    def say(self, *numbers: int) -> None:
        self.events += numbers
        self.came.set()

    def poll(self, cursor: str | None, wait_s: float) -> Request:
        return Request("GET", "/poll", (("after", cursor or ""),))

    def parse_poll(self, cursor: str | None, answer: Answer) -> Polled | Rejected | Unknown:
        said = answer.json()
        if answer.status == 401:
            return Rejected(FailureClass.AUTH, "give another token", code="bad_token", status=401)
        if answer.status == 429:
            return Rejected(FailureClass.RATE_LIMIT, "slow down", status=429, retry_after_s=17.0)
        if answer.status != 200 or said is None:
            return without_class(answer)
        arrivals = tuple(
            Arrival({"n": number}, str(number + 1) if self.poll_acknowledges or number % 2 else None)
            for number in said["events"]
        )
        return Polled(arrivals, None if self.poll_acknowledges else said["next"])

    async def ask(self, request: Request, deadline_s: float) -> Answer | Fault:
        after = dict(request.query)["after"]
        self.asked.append(after or None)
        if self.faults:
            await asyncio.sleep(0)
            return self.faults.pop(0)
        if self.poll_acknowledges:
            self.confirmed = max(self.confirmed, int(after or 0))
            self.events = [number for number in self.events if number >= self.confirmed]
        while not (found := [number for number in self.events if number >= int(after or 0)][: self.page]):
            self.came.clear()
            self.idle += 1
            await self.came.wait()
        await asyncio.sleep(0)
        body = {"events": found, "next": str(found[-1] + 1)}
        return Answer(200, {}, msgspec.json.encode(body))


def polling(plat: Plat, core: Core, clock: EagerClock | None = None, **more: Any) -> Polling:
    return Polling(plat, plat.ask, core, name="plat/a", clock=clock or EagerClock(), chance=random.Random(7), **more)


async def until(true: Callable[[], object], running: asyncio.Task[Any] | None = None) -> None:
    """Let the loop go on until it is so; the driver must not end meanwhile."""
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            if running is not None and running.done():
                running.result()
                raise AssertionError("the driver has ended")
            await asyncio.sleep(0)


async def settle(turns: int = 60) -> None:
    """Let everything happen that needs no time."""
    for _ in range(turns):
        await asyncio.sleep(0)


class Running:
    """A driver as a task, cancelled at the end; whatever it left behind is an error."""

    def __init__(self, work: Any) -> None:
        self._work = work

    async def __aenter__(self) -> asyncio.Task[None]:
        self.before = asyncio.all_tasks()
        self.task = asyncio.create_task(self._work)
        return self.task

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.task.cancel()
        ended = await asyncio.gather(self.task, return_exceptions=True)
        if error is None:
            assert isinstance(ended[0], asyncio.CancelledError), ended
            left = [one for one in asyncio.all_tasks() - self.before if "/adapters/" in _file_of(one)]
            assert left == [], "tasks are left"


def _file_of(task: asyncio.Task[Any]) -> str:
    return getattr(getattr(task.get_coro(), "cr_code", None), "co_filename", "")
