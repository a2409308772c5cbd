"""One transaction of the writer: what several callers append, checked, inserted, shown in the views, and committed.

Checks come before inserts: rows are gathered in memory and written at the end, so a refused append leaves nothing to
undo. It belongs to one thread. It never commits half an append, and never says "committed" before the disk does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import apsw

from .. import errors, fold, limits
from ..fold import State
from . import schema
from .append import NEW, Append, Appended, Body
from .connection import Link
from .crash import crash_point
from .many import Many
from .partitions import Partitions
from .streams import Streams
from .view import View

T = TypeVar("T")
Row = tuple[int, str, int, str, bytes, int]
RawEvent = tuple[str, int, str, bytes]
"""Stream, version, topic, body: what another program's recorder appends."""
_INSERT_EVENTS: Final = Many(schema.insert_events)


def _upsert(view: View) -> Many:
    return Many(lambda rows: schema.upsert(view.name, view.columns, view.key, view.fixed, rows))


def _put(view: View) -> Many:
    return Many(lambda rows: schema.put(view.name, view.columns, rows))


class Batch:
    """`begin`, then any number of `append`, `insert_raw` and statements on `cursor`, then `commit` or `rollback`."""

    def __init__(self, link: Link, views: Sequence[View], wall_ms: Callable[[], int], path: Path) -> None:
        self.connection, self._busy = link
        self.cursor = self.connection.cursor()
        self.views = [(view, _upsert(view)) for view in views]
        self._anew = [(view, _put(view)) for view in views]
        self._wall_ms = wall_ms
        self._path = path
        self._streams = Streams(self.connection.cursor())
        self._rows: list[Row] = []
        self._dirty: dict[str, State] = {}
        self._partitions = Partitions()
        self._data_version = -1
        self._schema_cookie = -1
        self._tail_known = False
        self._last_recorded_at = 0
        self.position = 0
        """The last position that is given, this transaction's included."""
        self.recorded_at = 0
        self.foreign = False
        """Whether another connection committed since this was last asked."""
        self._careful = False

    def look(self) -> None:
        """Notice what other connections committed."""
        version: int = self.connection.execute(schema.DATA_VERSION).get
        if version == self._data_version:
            return
        self.foreign = self._data_version != -1
        self._streams.distrust()
        self._partitions.forget()
        self._tail_known = False
        cookie: int = self.connection.execute(schema.SCHEMA_COOKIE).get
        if cookie != self._schema_cookie:
            if self._schema_cookie != -1:
                self._check_views()
            self._schema_cookie = cookie
        self._data_version = version

    def begin(self, until: float, *, careful: bool = False) -> None:
        """Take the write lock, waiting until `until` on `time.monotonic`.

        `careful`: also ask whether a stream that should be new is there. Otherwise the insert of one that is fails the
        whole transaction.
        """
        self._careful = careful
        crash_point("before-begin")
        self._busy.until = until
        try:
            self.cursor.execute(schema.BEGIN)
        finally:
            self._busy.until = None
        crash_point("after-begin")
        self.look()
        if not self._tail_known:
            self._read_tail()
        self.recorded_at = max(self._wall_ms(), self._last_recorded_at)

    def append(self, item: Append, bodies: Sequence[Body]) -> Appended:
        """Check one append and take it in. Raises a `Conflict` or `Unappendable`, and then nothing of it is taken."""
        stream = item.stream
        state = self._streams.get(stream, begins=item.expected == NEW and not self._careful)
        head = NEW if state is None else state.head
        if item.expected is not None and item.expected != head:
            raise errors.StaleHead(f"stream {stream} has head {head}, the append was decided on {item.expected}")
        if head + len(bodies) >= limits.EVENTS_PER_STREAM_MAX:
            raise errors.Unappendable(f"stream {stream} has {head + 1} events, the most is its bound")
        if item.guard is not None:
            item.guard.check(self._partitions.members(item.guard, self.cursor), state)
        count = len(self._rows)
        position = self.position
        recorded_at = self.recorded_at
        try:
            for event, (topic, body) in zip(item.events, bodies, strict=True):
                if item.expected is None and state is not None and fold.known(state, event):
                    continue
                state = fold.evolve(state, stream, event, self.position + 1, recorded_at)
                head += 1
                self.position += 1
                self._rows.append((self.position, stream, head, topic, body, recorded_at))
        except BaseException as error:
            del self._rows[count:]
            self.position = position
            if isinstance(error, fold.HeldStream):
                raise errors.Unappendable(str(error)) from error
            raise
        if state is None:
            raise errors.Unappendable(f"an append to stream {stream} has no events")
        appended = len(self._rows) - count
        if appended:
            self._touch(stream, state)
        return Appended(stream, head, self.position, state, recorded_at, appended)

    def insert_raw(self, events: Sequence[RawEvent]) -> list[int]:
        """Events of another program, as they are: no fold, no view. A version that is taken fails the transaction."""
        positions: list[int] = []
        for stream, version, topic, body in events:
            self.position += 1
            positions.append(self.position)
            self._rows.append((self.position, stream, version, topic, body, self.recorded_at))
            self._streams.forget(stream)
        self._insert()
        return positions

    def upsert(self, states: Iterable[State], *, anew: bool = False) -> None:
        """Show states in the views; `anew` also writes the columns that never change, over what stands in the way."""
        shown = list(states)
        if anew:
            self.distrust_views()
        for view, upsert in self._anew if anew else self.views:
            upsert.write(self.cursor, [row for state in shown for row in view.rows(state)])

    def distrust_views(self) -> None:
        """Forget what was learned from them: what stood there may have been damage."""
        self._partitions.forget()

    def commit(self) -> None:
        """Write, show, and make durable. Raises `WriteUncertain` where it cannot be known whether it is."""
        self._insert()
        if self._dirty:
            self.upsert(self._dirty.values())
            self._dirty.clear()
        crash_point("before-commit")
        try:
            self._commit()
        except (apsw.BusyError, apsw.FullError):
            raise  # SQLite did not get to the commit record
        except apsw.Error as error:
            raise errors.WriteUncertain(
                f"{self._path}: the commit failed and may still have happened ({error}); ask by the idempotency key"
            ) from error
        crash_point("after-commit")
        self._streams.committed()
        self._partitions.shown()
        self._last_recorded_at = self.recorded_at

    def rollback(self) -> None:
        """Forget the transaction and everything that was known before it."""
        self._rows.clear()
        self._dirty.clear()
        self._partitions.forget()
        self._streams.drop()
        self._tail_known = False
        if self.connection.in_transaction:
            self.cursor.execute(schema.ROLLBACK)

    def run(self, work: Callable[[Batch], T], wait_s: float) -> T:
        """A whole transaction for one piece of work, where no writer thread runs yet."""
        try:
            self.begin(time.monotonic() + wait_s)
            result = work(self)
            self.commit()
        except BaseException:
            self.rollback()
            raise
        return result

    def _commit(self) -> None:
        self.cursor.execute(schema.COMMIT)

    def _insert(self) -> None:
        if self._rows:
            _INSERT_EVENTS.write(self.cursor, self._rows)
            self._rows.clear()
            crash_point("after-insert")

    def _touch(self, stream: str, state: State) -> None:
        self._streams.put(stream, state)
        self._partitions.touch(stream, state)
        self._dirty[stream] = state

    def _read_tail(self) -> None:
        self.position = self.cursor.execute(schema.LAST_POSITION).get or 0
        self._last_recorded_at = self.cursor.execute(schema.LAST_RECORDED_AT).get or 0
        self._tail_known = True

    def _check_views(self) -> None:
        """Refuse to go on where another version of msgledger has made the views its own."""
        standing = dict(self.connection.execute(schema.VIEW_VERSIONS).fetchall())
        for view, _ in self.views:
            if abs(standing.get(view.name, view.version)) != view.version:
                raise errors.NewerSchema(
                    f"{self._path}: view {view.name} stands at version {standing[view.name]} now, this process knows"
                    f" {view.version}; restart it with the version of msgledger that changed it"
                )
