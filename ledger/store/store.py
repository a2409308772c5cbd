"""The store: one file, one writer thread, one reader thread, and the views that the appends keep.

The event loop never waits for the disk: `append` and `read` give futures. A cancelled future may still commit. The
other methods block, for scripts, tests and the command line. After a fork the child gets `StoreClosed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import apsw

from .. import errors, limits
from ..codec import Opaque
from ..errors import Conflict
from ..events import Event
from ..fold import State
from ..pseudonym import Pseudonyms
from . import connection, history, keys, rebuild, schema
from .append import Append, Appended
from .batch import Batch
from .connection import Link
from .filesystem import sync_folder
from .history import Held, Recorded
from .reader import Reader
from .rebuild import Progress, RebuildReport
from .sql import Connection, Cursor
from .view import View
from .waiting import Notice, Ticket, blocking, here
from .writer import Writer

T = TypeVar("T")


class Store:
    """Use `Store.open`, and `close` at the end (or `with`)."""

    def __init__(
        self, path: Path, views: Sequence[View], pseudonyms: Pseudonyms, writer: Writer | None, reader: Reader
    ) -> None:
        self.path = path
        self.views = tuple(views)
        self.pseudonyms = pseudonyms
        self.built: RebuildReport | None = None
        """What opening had to rebuild, if anything."""
        self._writer = writer
        self._reader = reader
        self._links: list[Link] = []

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        views: Sequence[View],
        *,
        wall_ms: Callable[[], int],
        wait_ms: int = limits.APPEND_WAIT_MS,
        create: bool = True,
        read_only: bool = False,
        vfs: str | None = None,
    ) -> Store:
        """Open a ledger, and make it where it is not there and `create` allows.

        `wall_ms` gives UTC milliseconds. `wait_ms` bounds every wait for a lock. Views that stand at another version
        are rebuilt. `read_only` opens without a writer, for inspection. Raises a `CannotOpen` or `StoreUnavailable`.
        """
        where = Path(os.path.realpath(path))
        connection.check_sqlite()
        connection.check_place(where)
        fresh = _make_file(where, create=create and not read_only)
        links: list[Link] = []
        try:
            pseudonyms = _check(where, links, wait_ms, read_only, vfs, fresh)
            store = cls(where, views, pseudonyms, None, Reader(links[0], where))
            if not read_only:
                store._writer = store._open_writer(links, wall_ms, wait_ms, vfs)
        except BaseException:
            for link in links:
                link.connection.close(True)
            raise
        store._links = links
        store._reader.start()
        if store._writer is not None:
            store._writer.start()
        _open.add(store)
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Appending.

    def append(self, *items: Append) -> asyncio.Future[list[Appended | Conflict]]:
        """Append together in one transaction: for each item what it led to, or the `Conflict` that refused it.

        The future fails where the whole group failed: `Unappendable`, a `StoreUnavailable`, `WriteUncertain`.
        Raises at once where nothing could be queued: `Unappendable`, `StoreOverloaded`, `StoreClosed`.
        """
        ticket = here()
        self._writing().submit(items, ticket)
        return cast("asyncio.Future[list[Appended | Conflict]]", ticket.future)

    def append_sync(self, *items: Append) -> list[Appended | Conflict]:
        """The same, blocking."""
        ticket = blocking()
        self._writing().submit(items, ticket)
        return _wait(ticket)

    def track(self, name: str, position: int) -> asyncio.Future[None]:
        """Record durably how far a follower of events has come. It never goes back."""
        ticket = here()
        self._writing().call(_tracking(name, position), ticket)
        return cast("asyncio.Future[None]", ticket.future)

    def track_sync(self, name: str, position: int) -> None:
        self.transact_sync(_tracking(name, position))

    def transact_sync(self, work: Callable[[Batch], T]) -> T:
        """Run `work` in a write transaction of its own, on the writer thread. For the store's own tools."""
        ticket = blocking()
        self._writing().call(work, ticket)
        return _wait(ticket)

    def on_commit(self, listener: Callable[[int], object]) -> Callable[[], None]:
        """Call `listener(position)` after each commit of this store: in the running event loop, or without one on the
        writer thread, where it must be quick. What it returns ends that."""
        return self._writing().listen(_notice(listener), foreign=False)

    def on_foreign_commit(self, listener: Callable[[], object]) -> Callable[[], None]:
        """The same for commits of other connections, seen within `limits.WATCH_INTERVAL_S`."""
        return self._writing().listen(_notice(listener), foreign=True)

    def on_any_commit(self, listener: Callable[..., object]) -> Callable[[], None]:
        """Call `listener` after each commit of anybody, always on the writer thread, where it must be quick."""
        notice = Notice(None, listener)
        ends = [self._writing().listen(notice, foreign=foreign) for foreign in (False, True)]

        def stop() -> None:
            for end in ends:
                end()

        return stop

    # Reading.

    def read(self, work: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        """Run `work(cursor, *arguments)` on the reader thread, over one snapshot: `await store.read(page, 0)`."""
        ticket = here()
        self._reader.submit(lambda cursor: work(cursor, *arguments), ticket)
        return cast("asyncio.Future[T]", ticket.future)

    def read_sync(self, work: Callable[..., T], *arguments: object) -> T:
        """The same, blocking."""
        ticket = blocking()
        self._reader.submit(lambda cursor: work(cursor, *arguments), ticket)
        return _wait(ticket)

    def events_of(self, stream: str) -> list[Recorded]:
        """All events of a stream, in order."""
        return self.read_sync(history.events_of, stream)

    @staticmethod
    def history(cursor: Cursor, stream: str) -> list[tuple[Event | Opaque, int, int]]:
        """The events of a stream as (event, position, recorded_at), inside a read."""
        return history.history(cursor, stream)

    def state_of(self, stream: str) -> State | None:
        """The state of a stream; None where there is none. Raises `StreamHeld`."""
        return self.read_sync(history.state_of, stream)

    def page(
        self, after_position: int, limit: int = limits.PAGE_ROWS, topics: Sequence[str] | None = None
    ) -> list[Recorded]:
        """The next events of all streams beyond a position."""
        return self.read_sync(history.page, after_position, limit, topics)

    def head_position(self) -> int:
        """The last position that was given; 0 before the first."""
        return self.read_sync(history.head_position)

    def tracked(self, name: str) -> int | None:
        """How far a follower has come; None where it never was heard of."""
        return self.read_sync(history.tracked, name)

    def held_streams(self) -> list[Held]:
        """Every stream that this version cannot read. Reads the whole ledger."""
        return self.read_sync(history.held_streams)

    # Views.

    def rebuild(self, progress: Progress | None = None) -> RebuildReport:
        """Show every stream anew, in slices, and remove rows that no state produces. Appends go on meanwhile."""
        return rebuild.fill(self.transact_sync, self.views, prune=True, progress=progress)

    def verify_views(self) -> list[str]:
        """Where the views differ from rebuilt ones, in sentences; empty is good. Reads the whole ledger."""
        return self.read_sync(rebuild.differences, self.views)

    # The end.

    def close(self) -> None:
        """Commit and answer what waits, then close the file. A second time does nothing. It blocks."""
        if self not in _open:
            return
        _open.discard(self)
        if self._writer is not None:
            self._writer.close()
        self._reader.close()
        for link in self._links:
            with contextlib.suppress(apsw.Error):
                link.connection.close(True)

    def abandon(self) -> None:
        """Refuse everything, and touch nothing: what a forked child does with its parent's store."""
        reason = errors.StoreClosed(f"{self.path}: the process forked after opening the ledger; open it anew")
        if self._writer is not None:
            self._writer.refuse(reason)
        self._reader.refuse(reason)

    def _writing(self) -> Writer:
        if self._writer is None:
            raise errors.StoreReadOnly(f"{self.path} was opened for reading only")
        return self._writer

    def _open_writer(self, links: list[Link], wall_ms: Callable[[], int], wait_ms: int, vfs: str | None) -> Writer:
        link = connection.connect(self.path, wait_ms=wait_ms, vfs=vfs)
        links.append(link)
        batch = Batch(link, self.views, wall_ms, self.path)
        wait_s = wait_ms / 1_000

        def transact(work: Callable[[Batch], T]) -> T:
            return batch.run(work, wait_s)

        try:
            if rebuild.outdated(batch.cursor, self.views):
                unfilled = transact(lambda batch: rebuild.make_anew(batch.cursor, self.views))
                self.built = rebuild.fill(transact, unfilled, prune=False)
            batch.look()  # what others commit from here on is news
        except apsw.Error as error:
            raise connection.failure(error, self.path) from error
        return Writer(batch, self.path, wait_ms)


_open: weakref.WeakSet[Store] = weakref.WeakSet()
_abandoned: list[Store] = []
"""Stores of a parent process: never used again, and never closed, which could touch the parent's file."""


def _forked() -> None:
    for store in list(_open):
        store.abandon()
        _abandoned.append(store)
    _open.clear()


os.register_at_fork(after_in_child=_forked)


def _make_file(path: Path, *, create: bool) -> bool:
    """An empty file of ours alone, where there is none; whether one was made.

    A file that stands is never opened here: closing it again would drop every lock that SQLite holds for this process.
    """
    try:
        if create:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        else:
            path.stat()
    except FileExistsError:
        return False
    except FileNotFoundError as error:
        raise errors.NotALedger(f"{path} is not there; check the path and that its folder exists") from error
    except OSError as error:
        raise errors.StoreReadOnly(f"{path} cannot be opened ({error.strerror}); check owner and mode") from error
    return create


def _check(path: Path, links: list[Link], wait_ms: int, read_only: bool, vfs: str | None, fresh: bool) -> Pseudonyms:
    """Connect the reader, make the ledger if the file is empty, and refuse what is not ours."""
    link = connection.connect(path, wait_ms=wait_ms, read_only=read_only, vfs=vfs)
    links.append(link)
    conn = link.connection
    if not connection.identify(conn, path):
        if read_only:
            raise errors.NotALedger(f"{path} is empty; give the path of a ledger")
        _make(conn, path, wait_ms)
        if fresh:
            sync_folder(path.parent)
    pseudonyms = keys.read(path)
    try:
        keys.check(path, pseudonyms, conn.execute(schema.META_GET, (schema.KEYS_CHECK,)).get)
        if not read_only and conn.readonly("main"):
            raise errors.StoreReadOnly(f"{path} may not be written; check its owner and mode, or open it read-only")
        conn.execute("PRAGMA query_only = ON")
    except apsw.Error as error:
        raise connection.failure(error, path) from error
    return pseudonyms


def _make(conn: Connection, path: Path, wait_ms: int) -> None:
    """Make the tables and the keys together. Another process may be doing the same: the first one wins."""
    connection.use_wal(conn, path, wait_ms)
    try:
        conn.execute(schema.BEGIN)
        try:
            if not connection.identify(conn, path):
                pseudonyms = keys.make(path)
                for text in schema.TABLES:
                    conn.execute(text)
                conn.execute(schema.META_PUT, (schema.KEYS_CHECK, pseudonyms.check()))
                conn.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
                conn.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION}")
            conn.execute(schema.COMMIT)
        except BaseException:
            if conn.in_transaction:
                conn.execute(schema.ROLLBACK)
            raise
    except apsw.Error as error:
        raise connection.failure(error, path) from error


def _tracking(name: str, position: int) -> Callable[[Batch], None]:
    def work(batch: Batch) -> None:
        batch.cursor.execute(schema.TRACK, (name, position))

    return work


def _notice(listener: Callable[..., object]) -> Notice:
    try:
        return Notice(asyncio.get_running_loop(), listener)
    except RuntimeError:
        return Notice(None, listener)


def _wait(ticket: Ticket) -> Any:
    future: Any = ticket.future
    return future.result()
