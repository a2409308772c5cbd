"""What may be asked of a ledger: the half of a gateway that needs no channel, and the whole of `reading`.

Every question reads in bounded steps, so that none holds up the dispatcher's own, and what is iterated over keeps one
page in memory. Nothing here writes, and a ledger that is only read has no worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Self, Unpack

from ..ledger.codec import Opaque
from ..ledger.dossier import Dossier, compile_dossier
from ..ledger.errors import InvalidQuery, NotPossible, StoreClosed
from ..ledger.events import Event
from ..ledger.limits import PAGE_ROWS
from ..ledger.message import Target
from ..ledger.store.clock import Clock, HostClock
from ..ledger.store.history import Recorded
from ..ledger.store.store import Store
from ..projections import as_of, log, open_to_read
from ..projections.conversation import Entry
from ..projections.intents import Row
from ..projections.query import ROWS_MAX, Filters, Moment, Query, asked, number_of, position_of
from ..projections.receipts import by_platform_id
from ..projections.search import further, step
from ..projections.timeline import Timeline, timeline
from .inbound.route import SessionContext
from .inbound.spoken import HISTORY_USUAL, spoken
from .send import Delivery

POLL_S: Final = 0.1
"""How often a ledger that is only read is looked at for news: nobody tells a reader of a commit."""


class Reads:
    """The questions. They raise `NotPossible` while nothing is open, and a `StoreUnavailable` like any other use."""

    _poll_s: float | None = None
    """How often to look for news where nobody tells of it; None: commits are told."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock if clock is not None else HostClock()
        self._store: Store | None = None
        self._followers: set[asyncio.Event] = set()

    def intent(self, of: str | Delivery) -> IntentRead:
        """One intent by its whole id: `await` it for the dossier as it stands, or ask the result for more.

        Raises `NoSuchIntent` when it is awaited.
        """
        return IntentRead(self._opened(), of.intent if isinstance(of, Delivery) else of)

    def intents(
        self,
        *,
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
        **filters: Unpack[Filters],
    ) -> Listing:
        """Rows of the view, newest first: in the order in which the intents were recorded.

        `await` gives a list of at most `limit` (500 where none is given), `async for` goes through all of them. The
        next page is `before=rows[-1].position`: exact also while others write. For the filters see `Filters`. Raises
        `InvalidQuery`.
        """
        return self._listing(limit, before, after, filters)

    def owed(
        self,
        *,
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
        **filters: Unpack[Filters],
    ) -> Listing:
        """What is not at its end, oldest first: in a conversation, the order in which it goes out.

        The same as `intents`, but the next page is `after=rows[-1].position`.
        """
        return self._listing(limit, before, after, filters, owed=True)

    async def by_platform_id(self, channel: str, platform_id: str, target: Target | None = None) -> list[str]:
        """The intents that made, changed or deleted the message with that id, newest first.

        An id is unique in one conversation only: `target` says in which. Raises `InvalidQuery` where it is needed.
        """
        store = self._opened()
        place = None if target is None else store.pseudonyms.place(target)
        return await store.read(by_platform_id, channel, platform_id, place)

    async def history(
        self,
        session: str | SessionContext,
        *,
        limit: int = HISTORY_USUAL,
        before: int | None = None,
        as_of: int | datetime | None = None,
        all: bool = False,
    ) -> list[Entry]:
        """The conversation of a session: what came in and what was sent, the newest `limit` entries, oldest first.

        `session`: its key, its id, the id of its stream, or the `SessionContext` of a turn. Only what belongs to its
        present session id, or with `all` everything under its key. `before`: the position of the oldest entry that is
        known, for the page before it. `as_of`: as it stood at a position, or at a time as the ledger knew it then.
        Raises `InvalidQuery`, and `NoSuchStream` where there is no such session.
        """
        cut = None if as_of is None else as_of_cut(as_of)
        name = session if isinstance(session, str) else session.session_id
        return await spoken(self._opened(), name, limit=limit, before=before, cut=cut, everything=all)

    def events(
        self,
        after: int = 0,
        *,
        follow: bool = False,
        topics: str | Sequence[str] | None = None,
        stream: str | None = None,
    ) -> AsyncGenerator[Recorded]:
        """Every event beyond a position, in the order of positions, none left out and none twice.

        It ends at the head as it was when it began; with `follow` it waits for what this and other processes commit,
        and ends when the ledger is closed. Begin again with `after=event.position`. `topics`: only these types.
        `stream`: only one intent, or worker. Raises `InvalidQuery`, for a position beyond the head at the first step.
        """
        pages = self.event_pages(after, follow=follow, topics=topics, stream=stream)
        return _flat(pages)

    def event_pages(
        self,
        after: int = 0,
        *,
        follow: bool = False,
        topics: str | Sequence[str] | None = None,
        stream: str | None = None,
    ) -> AsyncGenerator[list[Recorded]]:
        """The same as lists of what is there already."""
        return self._pages(self._opened(), position_of("after", after), follow, log.topics_named(topics), stream)

    async def _pages(
        self, store: Store, position: int, follow: bool, topics: Sequence[str], stream: str | None
    ) -> AsyncGenerator[list[Recorded]]:
        news = asyncio.Event()
        stops = self._listen(store, news) if follow else ()
        self._followers.add(news)
        end: int | None = None
        try:
            while True:
                news.clear()
                found = await store.read(log.page, position, topics, stream)
                end = found.head if end is None or follow else end
                if events := [one for one in found.events if one.position <= end]:
                    yield events
                position = found.reached
                if position < end:
                    continue
                if not follow:
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_s):
                        await news.wait()
                if self._store is not store:
                    return
        except StoreClosed:
            if not follow or self._store is store:
                raise
        finally:
            self._followers.discard(news)
            for stop in stops:
                stop()

    def _listen(self, store: Store, news: asyncio.Event) -> Sequence[Callable[[], None]]:
        """Have `news` set at each commit; what comes back ends that."""
        if self._poll_s is not None:
            return ()
        return store.on_commit(lambda _: news.set()), store.on_foreign_commit(news.set)

    def _end_followers(self) -> None:
        """The ledger closes: who waits for news looks up."""
        for news in self._followers:
            news.set()

    def _listing(
        self, limit: int | None, before: int | None, after: int | None, filters: Filters, *, owed: bool = False
    ) -> Listing:
        store = self._opened()
        if limit is not None and not 1 <= number_of("limit", limit, "number of rows") <= ROWS_MAX:
            raise InvalidQuery(f"limit: {limit} is not between 1 and {ROWS_MAX}: iterate to go through more")
        query = asked(filters, store.pseudonyms, self._clock.wall_ms(), owed=owed, after=after, before=before)
        return Listing(store, query, limit)

    def _opened(self) -> Store:
        if self._store is None:
            raise NotPossible(f"the {type(self).__name__.lower()} is not open: use it with `async with`")
        return self._store


class Listing:
    """Rows to `await` as one list, or to iterate over with `async for`, a page in memory at a time."""

    def __init__(self, store: Store, query: Query, limit: int | None) -> None:
        self._store = store
        self._query = query
        self._limit = limit

    def __await__(self) -> Generator[object, None, list[Row]]:
        return self._list().__await__()

    async def _list(self) -> list[Row]:
        return [row async for row in self._walk(PAGE_ROWS if self._limit is None else self._limit)]

    def __aiter__(self) -> AsyncIterator[Row]:
        return self._walk(self._limit)

    async def _walk(self, left: int | None) -> AsyncGenerator[Row]:
        query = self._query
        while left is None or left > 0:
            rows, go_on = await self._store.read(step, query, PAGE_ROWS if left is None else min(left, PAGE_ROWS))
            for row in rows:
                yield row
            if go_on is None:
                return
            left = None if left is None else left - len(rows)
            query = further(query, go_on)


class IntentRead:
    """One intent, as it stands or as it stood: `await` it for the `Dossier`."""

    def __init__(self, store: Store, id: str, cut: as_of.Cut | None = None) -> None:
        self._store = store
        self._id = id
        self._cut = cut

    def as_of(
        self, *, position: int | None = None, recorded_at: Moment | None = None, at: Moment | None = None
    ) -> IntentRead:
        """The same as it stood: at a position of the ledger, or at a time by one of two clocks.

        `recorded_at`: what the ledger knew then. `at`: what had happened by then, as far as is known today. Times are
        UTC milliseconds or a `datetime` with a zone. Raises `InvalidQuery`; and when it is awaited `NoSuchIntent` where
        the intent did not exist yet.
        """
        return IntentRead(self._store, self._id, as_of.cut(position, recorded_at, at))

    def __await__(self) -> Generator[object, None, Dossier]:
        return self._dossier().__await__()

    async def _dossier(self) -> Dossier:
        return compile_dossier(self._id, _triples(await self.events()))

    async def events(self) -> list[Recorded]:
        """Its events, in order."""
        return await self._store.read(as_of.history, self._id, self._cut)

    async def timeline(self) -> Timeline:
        """Its life as rows with marks: the intent, each attempt, the receipts."""
        return timeline(self._id, _triples(await self.events()))


class Reading(Reads):
    """A ledger that is only read: no worker, no channel, nothing written. Made by `msgledger.reading`."""

    _poll_s = POLL_S

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self._path = path

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Open the ledger, which must be there."""
        if self._store is not None:
            raise NotPossible("the reading is open already")
        self._store = await asyncio.get_running_loop().run_in_executor(None, self._open_store)

    def _open_store(self) -> Store:
        return open_to_read(self._path, self._clock.wall_ms)

    async def close(self) -> None:
        """Let go of the ledger. Who follows its events comes to an end."""
        store, self._store = self._store, None
        if store is not None:
            self._end_followers()
            await asyncio.get_running_loop().run_in_executor(None, store.close)


def reading(path: str | os.PathLike[str]) -> Reading:
    """The ledger at `path`, opened so that nothing can be written, beside whoever works on it. Use `async with`.

    Raises a `CannotOpen` or `StoreUnavailable` when it is entered.
    """
    return Reading(path)


async def _flat(pages: AsyncGenerator[list[Recorded]]) -> AsyncGenerator[Recorded]:
    async with contextlib.aclosing(pages):
        async for page in pages:
            for one in page:
                yield one


def as_of_cut(moment: int | datetime) -> as_of.Cut:
    """A position, or a time by which the ledger knew. Raises `InvalidQuery`."""
    return as_of.cut(moment, None, None) if isinstance(moment, int) else as_of.cut(None, moment, None)


def _triples(events: Sequence[Recorded]) -> Iterator[tuple[Event | Opaque, int, int]]:
    return ((one.event, one.position, one.recorded_at) for one in events)
