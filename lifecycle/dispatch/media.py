"""The files of messages: copied before the record, checked before they leave, let go of when nothing needs them.

What it hands on is the message with each file named by its keyed digest; a foreign path goes no further than this. It
never keeps the event loop waiting: all work on files runs on threads of its own, a few at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from msgspec.structs import replace

from ...adapters import calls
from ...adapters.surface import Channel, SendContext
from ...ledger.decide import UNREADABLE
from ...ledger.errors import InvalidMedia, LedgerError, StoreBroken, StoreClosed, StoreUnavailable
from ...ledger.intent import IntentState
from ...ledger.limits import (
    ATTACHMENTS_MAX,
    MEDIA_GRACE_S,
    MEDIA_MAX_BYTES,
    MEDIA_NAME_MAX_BYTES,
    MEDIA_RELEASE_WAIT_S,
    MEDIA_SWEEP_EVERY_S,
    MEDIA_SWEEP_FILES,
    MEDIA_THREADS,
    PAGE_ROWS,
)
from ...ledger.message import Attachment, Message, RenderedUnit
from ...ledger.outcome import Outcome, Proof, Rejected
from ...ledger.store.append import Guard
from ...ledger.store.apply import dossier_of
from ...ledger.store.batch import Batch
from ...ledger.store.clock import Clock
from ...ledger.store.custody import Custody, StillThere, measured
from ...ledger.store.store import Store
from ...projections.intents import by_key
from ...projections.media import needed_of
from ..plan import Durable

log = logging.getLogger("msgledger")

LOST: Final = "media_lost"
"""The code of a unit whose copy is not there any more, or not what it was."""
GONE: Final = "media_gone"
"""The code of a unit whose file may not be copied, and is not any more what it was when the message was recorded."""

T = TypeVar("T")


class Taken:
    """A message whose copies stay until it is recorded, whatever others let go of."""

    def __init__(self, custody: Custody, message: Message) -> None:
        self.message = message
        self.digests: list[str] = []
        """Of all its copies."""
        self._custody = custody
        self._held: list[str] = []
        self._over = False
        self._mutex = threading.Lock()

    def holds(self, digest: str) -> None:
        """A copy that is held. It is let go of at once where the caller has gone while it was made."""
        self.digests.append(digest)
        with self._mutex:
            self._held.append(digest)
        if self._over:
            self.let_go()

    def let_go(self, _: object = None) -> None:
        """It is recorded, or never will be."""
        with self._mutex:
            self._over = True
            held, self._held = self._held, []
        for digest in held:
            self._custody.let(digest)


class Media:
    """One per gateway."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.custody = Custody(store.path, store.pseudonyms)
        self._pool = ThreadPoolExecutor(MEDIA_THREADS, "msgledger-media")  # makes its threads when they are needed
        self._timer: asyncio.TimerHandle | None = None
        self._swept_to = ""

    # ---- life

    def start(self) -> None:
        """Sweep now and every so often, for what dead processes and people's decisions left behind."""
        self._later(self._sweep)
        self._timer = asyncio.get_running_loop().call_later(MEDIA_SWEEP_EVERY_S, self.start)

    async def close(self) -> None:
        """What is under way ends first."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)

    # ---- before the record

    @contextlib.asynccontextmanager
    async def taken(self, message: Message, channel: Channel, durability: Durable) -> AsyncGenerator[Taken]:
        """The message as it may be recorded: its files copied, named by digest, without paths and content.

        Raises `InvalidMedia` with nothing left behind.
        """
        taken = Taken(self.custody, message)
        try:
            files = list(message.attachments)
            if len(files) > ATTACHMENTS_MAX:
                raise InvalidMedia(f"the message has {len(files)} attachments, the most is {ATTACHMENTS_MAX}")
            for index, file in enumerate(files):
                _check(file, channel, durability, alone=_says_nothing_else(message))
                if channel.capabilities.attachments == "upload" and file.is_file:
                    work = partial(self._take, file, channel, durability, taken)
                    files[index] = await self._run(work)
                elif file.is_file:
                    files[index] = replace(file, path=None, data=None)
            taken.message = replace(message, attachments=tuple(files))
            yield taken
        finally:
            taken.let_go()
            if durability != "best_effort":  # its record may still be on its way: a sweep comes later
                self.release(taken.digests)

    async def as_recorded(self, message: Message, key: str, error: InvalidMedia) -> Message:
        """The message with the files that its key was recorded with, where its own cannot be read any more: what is
        handed over again under its key is owed already. Raises `error` where the key does not stand for such files.
        """
        unread = isinstance(error.__cause__, OSError)
        stands = await self._store.read(by_key, self._store.pseudonyms.key(key)) if key and unread else None
        recorded = None if stands is None else (await self._store.read(dossier_of, stands)).message
        if recorded is None or [file.name for file in recorded.attachments] != [f.name for f in message.attachments]:
            raise error
        return replace(message, attachments=recorded.attachments)

    def guard(self, state: IntentState, other: Guard | None) -> Guard:
        """What is asked inside the transaction that records an intent with files."""
        return StillThere(self.custody, list(state.media), other)

    def _take(self, file: Attachment, channel: Channel, durability: Durable, taken: Taken) -> Attachment:
        max_bytes = min(MEDIA_MAX_BYTES, channel.capabilities.media_max_bytes or MEDIA_MAX_BYTES)
        if file.data is not None:
            copy = self.custody.take(file.name, file.data, max_bytes=max_bytes)
        elif file.path is None:
            assert file.digest is not None
            self.custody.hold(file.digest)
            taken.holds(file.digest)
            if (wrong := self.custody.problem(file.digest, file.size)) is not None:
                raise InvalidMedia(f"{file.name} cannot go along: {wrong}; bring the file itself")
            size = self.custody.path(file.digest).stat().st_size
            measured(file.name, size, max_bytes)
            return replace(file, size=size)
        elif file.may_copy and durability != "disabled":
            try:
                copy = self.custody.take(file.name, file.path, max_bytes=max_bytes)
            except StoreUnavailable:
                if durability == "required":
                    raise
                return self._witnessed(file, file.path, max_bytes)
        else:
            return self._witnessed(file, file.path, max_bytes)
        taken.holds(copy.digest)
        return replace(file, digest=copy.digest, size=copy.size, path=None, data=None)

    def _witnessed(self, file: Attachment, path: str, max_bytes: int) -> Attachment:
        """What it is now, to be read again when it is sent."""
        seen = self.custody.witness(file.name, path, max_bytes=max_bytes)
        return replace(file, digest=seen.digest, size=seen.size, path=str(Path(path).absolute()), may_copy=False)

    # ---- before the request

    async def deliver(self, channel: Channel, unit: RenderedUnit, context: SendContext) -> Outcome:
        """`calls.deliver`, with the file of the unit checked before: what goes out is what was recorded, or nothing.

        Checking takes its time, so the last look comes again behind it; what that raises comes out.
        """
        file = unit.media
        if file is None or not file.is_file or file.digest is None or context.action != "send":
            return await calls.deliver(channel, unit, context)
        began = self._clock.boot_ms()
        path, digest = file.path, file.digest
        try:
            if path is None:
                code, wrong = LOST, await self._run(lambda: self.custody.problem(digest, file.size))
            else:
                code, wrong = GONE, await self._run(lambda: self._changed(file, path))
        except StoreBroken as error:  # it may be readable later, and is owed until then
            return _stopped("transient", str(error), UNREADABLE)
        if wrong is not None:
            return _stopped("invalid_payload", wrong, code)
        if context.last_look is not None:
            await context.last_look()
        left_s = context.deadline_s - (self._clock.boot_ms() - began) / 1000
        there = self.custody.path(digest) if path is None else Path(path)
        return await calls.deliver(channel, unit, replace(context, media=there, deadline_s=left_s))

    def _changed(self, file: Attachment, path: str) -> str | None:
        try:
            seen = self.custody.witness(file.name, path, max_bytes=max(file.size or 0, 1))
        except InvalidMedia as error:
            return str(error)
        return None if seen.digest == file.digest else f"{path} changed since the message was handed over"

    # ---- letting go

    def release(self, digests: Collection[str]) -> None:
        """Remove the copies among these that nothing needs, soon."""
        if digests:
            self._later(partial(self._release, list(digests)))

    def _release(self, digests: list[str]) -> None:
        """Asked twice: reading, so that most are left alone, and again where nobody can come in between."""

        def work(digest: str, batch: Batch) -> Path | None:
            needed = needed_of(batch.cursor, [digest], self._clock.wall_ms())
            return None if needed else self.custody.set_aside(digest)

        needed = self._store.read_sync(needed_of, digests, self._clock.wall_ms())
        for digest in dict.fromkeys(digests):
            if digest in needed:
                continue
            with self.custody.alone(digest, MEDIA_RELEASE_WAIT_S) as alone:
                aside = self._store.transact_sync(partial(work, digest)) if alone else None
            if aside is not None:
                aside.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """One bounded round over the folder; the next goes on where this one ended."""
        before = time.time() - MEDIA_GRACE_S
        self.custody.sweep_drafts(before)
        old = [digest for digest, *_ in islice(self.custody.listed(before, self._swept_to), MEDIA_SWEEP_FILES)]
        self._swept_to = old[-1] if len(old) == MEDIA_SWEEP_FILES else ""
        for at in range(0, len(old), PAGE_ROWS):
            self._release(old[at : at + PAGE_ROWS])

    # ---- threads

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            running = asyncio.get_running_loop().run_in_executor(self._pool, work)
        except RuntimeError as error:
            raise StoreClosed("the gateway closes: hand the message over again") from error
        return await running

    def _later(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the gateway has closed: the next one sweeps
            self._pool.submit(work).add_done_callback(_ended)


def _stopped(failure: str, detail: str, code: str) -> Rejected:
    return Rejected(failure, detail, code=code, bytes_left=False, proof=Proof.NEVER_DISPATCHED)


def _ended(done: Future[None]) -> None:
    error = done.exception()
    if error is not None and not isinstance(error, StoreClosed):
        log.warning("files that nothing needs stay for now: %s", error, exc_info=not isinstance(error, LedgerError))


def _says_nothing_else(message: Message) -> bool:
    text = message.body is not None and message.body.text.strip()
    return not text and all(file.is_file for file in message.attachments)


def _check(file: Attachment, channel: Channel, durability: Durable, *, alone: bool) -> None:
    """What can be refused before a file is looked at."""
    if len([source for source in (file.path, file.data, file.url) if source is not None]) > 1:
        raise InvalidMedia(f"attachment {file.name[:80]!r} has several sources: give a path, content or a link")
    if not file.is_file:
        return
    uploads = channel.capabilities.attachments == "upload"
    name = file.name.encode("utf-8", "replace")
    if not 0 < len(name) <= MEDIA_NAME_MAX_BYTES or "/" in file.name or not file.name.isprintable():
        raise InvalidMedia(
            f"attachment {file.name[:80]!r} has no usable name: give one of 1 to {MEDIA_NAME_MAX_BYTES} bytes"
        )
    if file.media_type is not None and not (file.media_type.isascii() and file.media_type.isprintable()):
        raise InvalidMedia(f"{file.media_type[:80]!r} is no media type: give one like image/png, or none")
    if not uploads and alone:
        raise InvalidMedia(
            f"channel {channel.name!r} takes no files and the message for it is nothing else: give it a text, or send"
            " a link to the file"
        )
    if uploads and not file.may_copy and (durability == "required" or file.path is None):
        raise InvalidMedia(
            f"attachment {file.name!r} may not be copied, so that it cannot be owed: let it be copied, or send it from"
            " its path as best_effort or disabled"
        )
