"""What the tests of the whole gateway share: a bench with a ledger, virtual time, platforms, and gateways to kill.

Each test that writes is checked afterwards: the live views equal rebuilt ones, and no content stands among the facts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
from msgledger import Gateway, Message, Target
from msgledger.adapters.surface import TextLimit
from msgledger.ledger.errors import StoreClosed
from msgledger.ledger.store.store import Store
from msgledger.projections import VIEWS

from .clock import START_WALL_MS, VirtualClock
from .platform import Platform

CONTENT_LEAST_CHARS = 6
"""Shorter strings say nothing when they are found among facts."""


class Event(NamedTuple):
    position: int
    stream: str
    type: str
    data: dict[str, Any]


class TestGateway(Gateway):
    """A gateway whose insides a test may look at."""

    __test__ = False

    def __init__(self, bench: Bench, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._bench = bench

    def _open_store(self) -> Store:
        store = super()._open_store()
        self._bench.clock.watch(store)
        self.store = store
        return store

    @property
    def dispatcher(self) -> Any:
        return self._dispatcher

    @property
    def turns(self) -> Any:
        return self._receiving.turns

    async def start(self) -> None:
        await super().start()
        self._bench.clock.gateways.append(self)

    async def close(self) -> None:
        await super().close()
        with contextlib.suppress(ValueError):
            self._bench.clock.gateways.remove(self)

    async def kill(self) -> None:
        """Die as by SIGKILL: nothing is recorded any more, the lock is free, tasks are gone."""
        store, self._store = self._store, None
        assert store is not None
        self._bench.clock.gateways.remove(self)
        dispatcher = self._dispatcher

        def dead(*_: Any) -> Any:
            raise StoreClosed("the process was killed")

        store.append = dead  # type: ignore[method-assign]
        dispatcher._closing = True
        turns = self.turns
        turns._closing = True
        tasks = [dispatcher._loop_task, *dispatcher.busy.values(), *turns.busy.values(), *self._receiving._drivers]
        tasks += [turns._task] if turns._task is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        dispatcher.waiters.dismiss()
        for subscriber in self._subscribers:
            await subscriber.stop()
        for stop in self._stops:
            stop()
        self._owner.release()
        await asyncio.get_running_loop().run_in_executor(None, store.close)


class Bench:
    """One ledger, one clock, and as many gateways over it as a test wants."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.db"
        self.clock = VirtualClock()
        self.platform = Platform(self.clock)

    def other(self, name: str, **more: Any) -> Platform:
        return Platform(self.clock, name, **more)

    def gateway(self, *channels: Any, seed: int = 7, chance: Any = None, **more: Any) -> TestGateway:
        """Over the channels given, else over one to `platform`."""
        chosen = channels or (self.platform.channel(),)
        chance = chance or random.Random(seed)
        return TestGateway(self, self.path, chosen, clock=self.clock, chance=chance, **more)

    def run(self, test: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(test)

    # ---- the raw file, read by somebody else

    def query(self, text: str, *arguments: Any) -> list[Any]:
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return connection.execute(text, arguments).fetchall()
        finally:
            connection.close()

    def events(self, stream: str | None = None) -> list[Event]:
        rows = self.query("SELECT position, stream, type, data FROM events ORDER BY position")
        return [Event(*row[:3], json.loads(row[3])) for row in rows if stream in (None, row[1])]

    def types(self, stream: str) -> list[str]:
        return [event.type for event in self.events(stream)]

    def types_of_intents(self) -> list[str]:
        """The types of all events but those of workers."""
        return [one.type for one in self.events() if not one.type.startswith(("Worker", "Channel"))]

    def last(self, stream: str, type: str) -> dict[str, Any]:
        return [event.data for event in self.events(stream) if event.type == type][-1]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Somebody else holds the write lock."""
        connection = apsw.Connection(str(self.path))
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")
            connection.close()


def to(place: str = "room-4711", channel: str = "plat", **more: Any) -> Target:
    return Target.group(channel, place, **more)


def text(words: str, place: str = "room-4711", channel: str = "plat", **more: Any) -> Message:
    return Message.text(words, to=to(place, channel), **more)


def parts(count: int) -> str:
    """A text that becomes so many units on a channel that takes 50 characters and a little more."""
    return "\n\n".join(f"part {number} ".ljust(45, ".") for number in range(count))


SHORT = TextLimit(max=72, chunking=True)
"""Where `parts(n)` become n units, also with room for the duplicate marker in the first."""


async def backlog(bench: Bench, count: int, lanes: int) -> None:
    """So many messages owed since an earlier process, spread over so many lanes."""
    bench.platform.ready = False
    async with bench.gateway() as gateway:
        await asyncio.gather(
            *(gateway.send(text(f"{number:04}", f"room-{number % lanes:04}"), wait=False) for number in range(count))
        )
    bench.platform.ready = True


async def killed_while_sending(bench: Bench, behaviour: Any, **options: Any) -> str:
    """A process that dies with a request on its way; the intent's id."""
    bench.platform.plan(behaviour)
    gateway = bench.gateway(bench.platform.channel(text=SHORT))
    await gateway.start()
    delivery = await gateway.send(text("ambiguous"), timeout_s=0.05, **options)
    await gateway.kill()
    assert bench.types(delivery.intent) == ["IntentRecorded", "AttemptStarted"]
    return delivery.intent


def check(path: Path) -> None:
    """G9 and the line between content and facts, for whatever a test has left behind."""
    now = START_WALL_MS
    with Store.open(path, VIEWS, wall_ms=lambda: now, create=False, read_only=True) as store:
        held = [one.stream for one in store.held_streams()]
        differences = [one for one in store.verify_views() if not any(stream in one for stream in held)]
        assert differences == [], differences
        rows = store.read_sync(lambda cursor: cursor.execute("SELECT type, data FROM events").fetchall())
        shown = [
            value
            for view in VIEWS
            for row in store.read_sync(rows_of, view.name)
            for value in row
            if isinstance(value, str)
        ]
    secrets, facts = set[str](), list(shown)
    for _, data in rows:
        with contextlib.suppress(ValueError):
            event = json.loads(data)
            if isinstance(event, dict):
                content = event.pop("content", None)
                secrets |= private(content or {})
                facts.append(json.dumps(event, ensure_ascii=False))
    leaked = [(secret, fact) for secret in secrets for fact in facts if secret in fact]
    assert leaked == [], "content stands among the facts"


def rows_of(cursor: Any, view: str) -> list[Any]:
    return cursor.execute(f"SELECT * FROM {view}").fetchall()


def private(content: dict[str, Any]) -> set[str]:
    """What nobody may find outside `content`: texts, ids of places and people, keys, error texts."""
    message = content.get("message") or {}
    target = message.get("target") or {}
    relation = message.get("relation") or {}
    units = (content.get("batch") or {}).get("units") or []
    found = [content.get("detail"), message.get("sender"), (message.get("body") or {}).get("text")]
    found += [target.get(name) for name in ("id", "label", "space", "parent", "thread")]
    found += [relation.get(name) for name in ("reply_to", "thread", "quote", "session")]
    found += [unit.get("text") for unit in units]
    found += [file.get(name) for file in message.get("attachments") or () for name in ("name", "path", "url")]
    key = content.get("key")
    if key is not None and "-7" not in key:  # a fresh key is the intent's own id
        found.append(key)
    return {value for value in found if isinstance(value, str) and len(value) >= CONTENT_LEAST_CHARS}
