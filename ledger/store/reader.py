"""The reader thread: queries off the event loop, on a connection of its own that cannot write.

Reads that wait share one wake-up and one snapshot, taken after they were asked for: a caller sees what was committed
before it asked. A read that fails fails alone.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from .. import limits
from ..errors import LedgerError, StoreClosed, StoreOverloaded
from . import schema
from .connection import Link, mapped
from .history import head_position
from .sql import Cursor
from .waiting import Done, Ticket, blocking, deliver


class _Read(NamedTuple):
    work: Callable[[Cursor], object]
    ticket: Ticket


_STOP: Final = _Read(head_position, blocking())


class Reader:
    """The thread and its queue. `start` it once."""

    def __init__(self, link: Link, path: Path) -> None:
        self._connection = link.connection
        self._path = path
        self._queue: queue.SimpleQueue[_Read] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._refusal: LedgerError | None = None
        self._thread = threading.Thread(target=self._run, name=f"msgledger reader {path.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, work: Callable[[Cursor], object], ticket: Ticket) -> None:
        """Hand over a read. Raises `StoreOverloaded` or `StoreClosed`."""
        if self._refusal is None:
            with self._lock:
                if self._refusal is None:
                    if self._queue.qsize() >= limits.READER_QUEUE_ITEMS:
                        raise StoreOverloaded(f"{self._path}: {limits.READER_QUEUE_ITEMS} reads wait already")
                    self._queue.put(_Read(work, ticket))
                    return
        raise type(self._refusal)(*self._refusal.args)

    def refuse(self, reason: LedgerError) -> None:
        """Accept nothing more. Takes no lock: a forked child calls it."""
        self._refusal = reason

    def close(self) -> None:
        """Answer what waits, then end the thread."""
        with self._lock:
            if self._refusal is None:
                self._refusal = StoreClosed(f"{self._path}: the ledger was closed")
                self._queue.put(_STOP)
        self._thread.join()

    # What follows runs on the thread.

    def _run(self) -> None:
        while (reads := self._take()) is not None:
            done: list[Done] = []
            try:
                self._connection.execute(schema.SNAPSHOT)
            except apsw.Error as error:
                done = [Done(read.ticket, None, mapped(error, self._path)) for read in reads]
            else:
                done = [self._read(read) for read in reads]
                with contextlib.suppress(apsw.Error):  # it read only: there is nothing to lose
                    self._connection.execute(schema.ROLLBACK)
            deliver(done)

    def _take(self) -> list[_Read] | None:
        read = self._queue.get()
        if read is _STOP:
            return None
        reads = [read]
        with contextlib.suppress(queue.Empty):
            while len(reads) < limits.WRITER_BATCH_ITEMS:
                read = self._queue.get_nowait()
                if read is _STOP:
                    self._queue.put(_STOP)
                    break
                reads.append(read)
        return reads

    def _read(self, read: _Read) -> Done:
        cursor = self._connection.cursor()
        try:
            return Done(read.ticket, read.work(cursor), None)
        except BaseException as error:
            return Done(read.ticket, None, mapped(error, self._path))
        finally:
            cursor.close(True)
