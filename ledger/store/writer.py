"""The writer thread: takes what waits, commits it together, and wakes each caller once.

One commit costs a disk flush however much is in it, so whatever arrived meanwhile shares the next one. A caller never
waits beyond its bound for a locked ledger, and never hears "done" before the commit. One bad append fails alone.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import apsw

from .. import limits
from ..errors import (
    CannotOpen,
    LedgerError,
    StoreClosed,
    StoreLocked,
    StoreOverloaded,
    StoreUnavailable,
    Unappendable,
    WriteUncertain,
)
from .append import Append
from .batch import Batch
from .connection import mapped
from .crash import crash_point
from .job import Group, Job
from .waiting import Done, Notice, Ticket, blocking, deliver

_FOR_ALL: Final = (StoreUnavailable, WriteUncertain, CannotOpen)
"""Errors of the store itself: trying the jobs one by one would only repeat them."""
_STOP: Final = Job(lambda batch: None, blocking(), 0.0, size=0)


class Writer:
    """The thread and its queue. `start` it once; `close` lets it finish what waits."""

    def __init__(self, batch: Batch, path: Path, wait_ms: int) -> None:
        self._batch = batch
        self._path = path
        self._wait_s = wait_ms / 1_000
        self._queue: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._waiting = 0
        self._lock = threading.Lock()
        self._refusal: LedgerError | None = None
        self._in_hand: list[Job] = []
        self._held_back: list[Job] = []
        self._own: list[Notice] = []
        self._foreign: list[Notice] = []
        self._thread = threading.Thread(target=self._run, name=f"msgledger writer {path.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, items: Sequence[Append], ticket: Ticket) -> None:
        """Hand over a group. Raises before anything is queued: `Unappendable`, `StoreOverloaded`, `StoreClosed`."""
        if len(items) > limits.GROUP_APPENDS_MAX:
            raise Unappendable(f"a group of {len(items)} appends; the most is {limits.GROUP_APPENDS_MAX}")
        self._put(Job(Group(items), ticket, time.monotonic() + self._wait_s, size=len(items)))

    def call(self, work: Callable[[Batch], object], ticket: Ticket) -> None:
        """Hand over work that gets a transaction of its own."""
        self._put(Job(work, ticket, time.monotonic() + self._wait_s, alone=True))

    def refuse(self, reason: LedgerError) -> None:
        """Accept nothing more. Takes no lock: a forked child calls it."""
        self._refusal = reason

    def close(self) -> None:
        """Finish what waits, then end the thread. What comes later is refused."""
        with self._lock:
            if self._refusal is None:
                self._refusal = StoreClosed(f"{self._path}: the ledger was closed")
                self._queue.put(_STOP)
        self._thread.join()

    def listen(self, notice: Notice, *, foreign: bool) -> Callable[[], None]:
        """Tell of every commit of ours (with its last position), or of others'. What it returns ends that."""
        listeners = self._foreign if foreign else self._own
        listeners.append(notice)

        def stop() -> None:
            with contextlib.suppress(ValueError):
                listeners.remove(notice)

        return stop

    def _put(self, job: Job) -> None:
        if self._refusal is None:  # before the lock, which a forked child may have inherited taken
            with self._lock:
                if self._refusal is None:
                    if self._waiting + job.size > limits.WRITER_QUEUE_ITEMS:
                        raise StoreOverloaded(
                            f"{self._path}: {self._waiting} appends wait already, the most is"
                            f" {limits.WRITER_QUEUE_ITEMS}; send slower, or see why the disk is slow"
                        )
                    self._waiting += job.size
                    self._queue.put(job)
                    return
        raise type(self._refusal)(*self._refusal.args) from self._refusal.__cause__

    # What follows runs on the thread.

    def _run(self) -> None:
        try:
            while (jobs := self._take()) is not None:
                if jobs:
                    self._in_hand = jobs
                    self._serve(jobs)
                    self._in_hand = []
                else:
                    with contextlib.suppress(Exception):  # whatever is wrong, the next append reports it
                        self._batch.look()
                if self._batch.foreign:
                    self._batch.foreign = False
                    deliver((), [(notice, ()) for notice in tuple(self._foreign)])
        except BaseException as error:
            self._die(error)

    def _take(self) -> list[Job] | None:
        """What shares the next transaction: at most a batch; nothing after a while; None at the end."""
        jobs, self._held_back = self._held_back, []
        wait = not jobs
        taken = 0
        while taken < limits.WRITER_BATCH_ITEMS:
            try:
                job = self._queue.get(timeout=limits.WATCH_INTERVAL_S) if wait else self._queue.get_nowait()
            except queue.Empty:
                break
            if job is _STOP:
                if wait:
                    return None
                self._queue.put(_STOP)  # for the next turn; nothing else can come in between
                break
            wait = False
            jobs.append(job)
            taken += job.size
        if taken:
            with self._lock:
                self._waiting -= taken
        return jobs

    def _serve(self, jobs: list[Job]) -> None:
        """Serve the jobs that come first and may share; hold back the rest."""
        for index, job in enumerate(jobs):
            if job.alone:
                cut = index or 1
                self._held_back = jobs[cut:]
                jobs = jobs[:cut]
                break
        if not self._together(jobs):
            for job in jobs:
                self._together([job], careful=True)

    def _together(self, jobs: list[Job], *, careful: bool = False) -> bool:
        """One transaction for all. False where one spoiled it, and each must be tried by itself, carefully."""
        batch = self._batch
        done: list[Done] = []
        try:
            batch.begin(min([job.until for job in jobs]), careful=careful)
            before = batch.position
            for job in jobs:
                taken = batch.position
                try:
                    done.append(Done(job.ticket, job.work(batch), None))
                except Unappendable as error:
                    if job.alone or batch.position != taken:
                        raise
                    done.append(Done(job.ticket, None, error))  # nothing of this job was taken
            batch.commit()
        except Exception as caught:
            error = mapped(caught, self._path)
            with contextlib.suppress(Exception):  # what made it necessary is reported
                batch.rollback()
            if isinstance(error, StoreLocked):
                jobs = self._late(jobs)
            elif not careful and _may_be_one_of(jobs, error, caught):
                return False
            deliver([Done(job.ticket, None, error) for job in jobs])
            return True
        crash_point("before-wake")
        if batch.position == before:
            deliver(done)
        else:
            deliver(done, [(notice, (batch.position,)) for notice in tuple(self._own)])
        return True

    def _late(self, jobs: list[Job]) -> list[Job]:
        """Those whose wait is over; the others try again with the next batch."""
        now = time.monotonic()
        self._held_back = [job for job in jobs if job.until > now] + self._held_back
        return [job for job in jobs if job.until <= now]

    def _die(self, error: BaseException) -> None:
        """The thread ends out of turn: nobody may wait for ever."""
        self._refusal = StoreClosed(f"{self._path}: the writer thread died of {type(error).__name__}: {error}")
        self._refusal.__cause__ = error
        left = [*self._in_hand, *self._held_back]
        with contextlib.suppress(queue.Empty):
            while True:
                job = self._queue.get_nowait()
                if job is not _STOP:
                    left.append(job)
        deliver([Done(job.ticket, None, self._refusal) for job in left])


def _may_be_one_of(jobs: Sequence[Job], error: BaseException, caught: Exception) -> bool:
    """Whether trying the jobs one by one may show which of them is to blame; a single one, by asking more carefully."""
    if isinstance(error, _FOR_ALL) and not isinstance(caught, apsw.CorruptError):
        return False
    return len(jobs) > 1 or (isinstance(error, Unappendable) and not jobs[0].alone)
