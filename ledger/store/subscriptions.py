"""Following the ledger through the `eventsourcing` library: pages of notifications, and the subscription over them.

Positions are given inside the write transaction, so what a snapshot shows up to its head never gets a gap filled later:
a position that was looked at is done with. At most one page is in memory, however far behind a subscriber is.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from eventsourcing.persistence import ApplicationRecorder, Notification, OperationalError, Subscription

from .. import errors, limits
from . import schema
from .datastore import Datastore, topics_of
from .history import head_position
from .sql import Cursor


class Page(NamedTuple):
    found: list[Notification]
    reached: int
    """Every position up to here has been looked at."""
    ended: bool
    """Nothing is left to look at now."""


def read_page(
    cursor: Cursor, after: int, last: int, limit: int, topics: Sequence[str], id_of: Callable[[str], UUID | str]
) -> Page:
    """Notifications beyond `after`, up to and with `last`: at most `limit`, and of bounded size and effort."""
    last = min(last, head_position(cursor))
    to = min(last, after + limits.SCAN_POSITIONS) if topics else last
    text = schema.page(topics or None, until=True)
    found: list[Notification] = []
    size = 0
    for stream, version, topic, state, position, _ in cursor.execute(text, (after, to, *topics, limit)):
        found.append(Notification(id_of(stream), version, topic, state, id=position))
        size += len(state)
        if len(found) == limit or size > limits.PAGE_BYTES:
            return Page(found, position, ended=False)
    return Page(found, max(after, to), to >= last)


def select(datastore: Datastore, after: int, last: int, limit: int, topics: Sequence[str]) -> list[Notification]:
    """As many pages as it takes."""
    names = topics_of(topics)
    found: list[Notification] = []
    ended = False
    while len(found) < limit and not ended:
        rest = limit - len(found)
        page, after, ended = datastore.read(read_page, after, last, rest, names, datastore.originator_id)
        found += page
    return found


class ApswSubscription(Subscription[ApplicationRecorder]):
    """Every notification beyond `gt`, in order, once; then waits for more, of this process or another.

    It ends with `stop`, with its `with` block, and with the ledger. One thread iterates it, any thread may stop it.
    """

    def __init__(
        self, recorder: ApplicationRecorder, datastore: Datastore, gt: int | None = None, topics: Sequence[str] = ()
    ) -> None:
        super().__init__(recorder, gt, topics_of(topics))
        self._datastore = datastore
        self._reached = gt or 0
        self._page: deque[Notification] = deque()
        self._news = threading.Event()
        datastore.read(head_position)  # one to a ledger that is closed would end in silence
        try:
            unlisten = datastore.store.on_any_commit(_waker(self._news))
        except errors.LedgerError as error:
            raise OperationalError(str(error)) from error
        self._forget = weakref.finalize(self, unlisten)
        datastore.followers.add(self)

    def stop(self) -> None:
        super().stop()
        self._news.set()
        self._forget()

    def __next__(self) -> Notification:
        while not self._has_been_stopped:
            if self._page:
                return self._page.popleft()
            self._news.clear()
            if self._has_been_stopped:  # between the two lines above: its wake-up has just been cleared
                break
            page = self._read()
            if page is None:
                break
            found, self._reached, ended = page
            self._page.extend(found)
            if ended and not found:
                self._news.wait(limits.FOLLOW_CHECK_S)
        raise StopIteration

    def _read(self) -> Page | None:
        """The next page; None once the ledger is closed."""
        datastore = self._datastore
        arguments = (self._reached, schema.BEHIND_ALL, limits.PAGE_ROWS, self._topics, datastore.originator_id)
        try:
            return datastore.store.read_sync(read_page, *arguments)
        except errors.StoreClosed:
            self.stop()
            return None
        except errors.LedgerError as error:
            raise OperationalError(str(error)) from error


def _waker(news: threading.Event) -> Callable[..., None]:
    """A listener that holds no subscription, so that one which is forgotten can go."""

    def wake(*_: object) -> None:
        news.set()

    return wake
