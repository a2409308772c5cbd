"""Copies of the files that queued messages owe, beside the ledger: `<ledger>.d/media/<2 hex>/<keyed digest>`.

A copy is whole, durable and named before its message is recorded, so that whatever becomes of the source, what was owed
is sent. Equal content is stored once. It blocks: never call it on an event loop.

Whoever takes a copy shares the lock of its folder until the message is recorded; whoever removes one holds that lock
alone, and does it inside a write transaction of the ledger that has seen that nothing needs it. Should a copy be gone
all the same, the record is refused. The kernel frees the locks of a process that dies.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ..errors import InvalidMedia, MediaReleased, StoreBroken, StoreFull, StoreLocked, StoreReadOnly
from ..fold import Member, State
from ..limits import MEDIA_HOLD_WAIT_S, MEDIA_PIECE_BYTES
from ..pseudonym import Pseudonyms, Streamed
from .append import Guard
from .filesystem import sync_folder
from .sql import Cursor

PURPOSE: Final = "media"
DRAFT: Final = ".tmp"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""`O_NONBLOCK`: a pipe that nobody writes to is looked at, not waited for."""
HELD_AGAIN_S: Final = 0.02
"""How often a folder that somebody holds is tried again."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Copy(NamedTuple):
    """What was read: its keyed digest and its bytes."""

    digest: str
    size: int


class Custody:
    """The copies of one ledger. Any thread, any process."""

    def __init__(self, ledger: Path, pseudonyms: Pseudonyms) -> None:
        self.folder = ledger.with_name(ledger.name + ".d") / "media"
        self._pseudonyms = pseudonyms
        self._held: dict[Path, tuple[int, int]] = {}
        """Folders whose locks are shared: the descriptor, and how often."""
        self._durable: set[Path] = set()
        self._mutex = threading.Lock()

    def path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise InvalidMedia(f"{digest[:80]!r} is no digest of a file: bring the file itself")
        return self.folder / digest[:2] / digest

    # ---- taking

    def take(self, name: str, source: str | bytes, *, max_bytes: int) -> Copy:
        """Copy a file, or content in memory, and hold the copy until `let`. Raises `InvalidMedia` where it cannot be
        taken as it is, and a `StoreUnavailable` where the copy cannot be written; either leaves nothing behind.
        """
        with _reading(name, source, max_bytes) as pieces, self._draft() as (draft, fd):
            digest = self._pseudonyms.stream(PURPOSE)
            size = 0
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                with self._writing():
                    _write(fd, piece)
            copy = Copy(digest.hexdigest(), size)
            with self._writing():
                os.fsync(fd)
                self.hold(copy.digest)
                try:
                    place = self.path(copy.digest)
                    os.rename(draft, place)  # over an equal one, which it mends where that was damaged
                    sync_folder(place.parent)
                except BaseException:
                    self.let(copy.digest)
                    raise
        return copy

    def hold(self, digest: str) -> None:
        """Nobody removes a copy of this digest until `let`, as often as it was held. Raises a `StoreUnavailable`."""
        folder = self.path(digest).parent
        with self._writing():
            self._make(folder)
            fd = os.open(folder, _READ)
        ends = time.monotonic() + MEDIA_HOLD_WAIT_S
        while not _locked(fd, fcntl.LOCK_SH):  # somebody removes something there, which is quick
            if time.monotonic() >= ends:
                os.close(fd)
                raise StoreLocked(f"{folder} is locked by another process; see `msgledger doctor` for who works here")
            time.sleep(HELD_AGAIN_S)
        with self._mutex:
            first, times = self._held.get(folder, (fd, 0))
            self._held[folder] = (first, times + 1)
        if times:
            os.close(fd)

    def let(self, digest: str) -> None:
        folder = self.path(digest).parent
        with self._mutex:
            fd, times = self._held.pop(folder)
            if times > 1:
                self._held[folder] = (fd, times - 1)
            else:
                os.close(fd)

    def witness(self, name: str, source: str, *, max_bytes: int) -> Copy:
        """The same without a copy: what the file holds now. Raises `InvalidMedia`."""
        with _reading(name, source, max_bytes) as pieces:
            digest = self._pseudonyms.stream(PURPOSE)
            size = sum(_counted(digest, piece) for piece in pieces)
        return Copy(digest.hexdigest(), size)

    # ---- sending

    def problem(self, digest: str, size: int | None, *, deep: bool = True) -> str | None:
        """What is wrong with a copy for good, or None. `deep` reads all of it; otherwise it is found and measured.

        Raises `StoreBroken` where it cannot be read now, which says nothing of what it holds.
        """
        place = self.path(digest)
        try:
            found = place.stat()
            if size is not None and found.st_size != size:
                return f"its copy {place} has {found.st_size} bytes and was made with {size}"
            if deep and self.witness(place.name, str(place), max_bytes=found.st_size).digest != digest:
                return f"its copy {place} has other content than it was made with"
        except (OSError, InvalidMedia) as error:
            cause = error.__cause__ if isinstance(error, InvalidMedia) else error
            if isinstance(cause, FileNotFoundError):
                return f"its copy {place} is not there"
            if isinstance(cause, OSError):
                raise StoreBroken(f"its copy {place} cannot be read now ({cause.strerror}): check its owner") from error
            return f"its copy is no good: {error}"
        return None

    # ---- letting go

    @contextlib.contextmanager
    def alone(self, digest: str, wait_s: float) -> Generator[bool]:
        """Whether nobody holds a copy in the folder of this digest, nor can until the block ends."""
        ends = time.monotonic() + wait_s
        try:
            fd = os.open(self.path(digest).parent, _READ)
        except OSError:
            yield False  # there is nothing of it
            return
        try:
            while not (mine := _locked(fd)) and time.monotonic() < ends:
                time.sleep(HELD_AGAIN_S)
            yield mine
        finally:
            os.close(fd)

    def set_aside(self, digest: str) -> Path | None:
        """Take a copy out of its place, inside the transaction that has seen that nothing needs it: as a draft, which
        is quick to move and may take its time to be removed. None where there is no copy."""
        draft = self._new_draft()
        try:
            os.rename(self.path(digest), draft)
        except OSError:
            return None
        return draft

    def listed(self, before: float, after: str = "") -> Iterator[tuple[str, int, float]]:
        """Digest, bytes and UTC seconds of the copies that were made before a time, by digest beyond `after`."""
        for shard in _names(self.folder):
            if len(shard) != 2 or shard < after[:2]:
                continue
            for digest in _names(self.folder / shard):
                with contextlib.suppress(OSError):
                    found = (self.folder / shard / digest).stat()
                    if digest > after and found.st_mtime < before and _DIGEST.fullmatch(digest):
                        yield digest, found.st_size, found.st_mtime

    def sweep_drafts(self, before: float) -> int:
        """Remove what processes that died left half copied or half removed; how many there were."""
        removed = 0
        for name in _names(self.folder):
            draft = self.folder / name
            with contextlib.suppress(OSError):
                if not name.endswith(DRAFT) or draft.stat().st_mtime >= before:
                    continue
                fd = os.open(draft, _READ)
                try:
                    if _locked(fd):  # else somebody copies into it
                        draft.unlink()
                        removed += 1
                finally:
                    os.close(fd)
        return removed

    # ---- the folder

    @contextlib.contextmanager
    def _draft(self) -> Generator[tuple[Path, int]]:
        """A file of ours alone to copy into, locked for as long as its maker lives."""
        draft = self._new_draft()
        with self._writing():
            self._make(self.folder)
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield draft, fd
        finally:
            os.close(fd)
            with contextlib.suppress(OSError):
                draft.unlink()  # where it did not become a copy

    def _new_draft(self) -> Path:
        return self.folder / (secrets.token_hex(16) + DRAFT)

    def _make(self, folder: Path) -> None:
        """A folder and those above it up to the ledger's, each durable in the one above, whoever made it."""
        if folder in self._durable and folder.is_dir():
            return
        if folder.parent != self.folder.parent.parent:
            self._make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder.parent)
        self._durable.add(folder)

    @contextlib.contextmanager
    def _writing(self) -> Generator[None]:
        """What an error of the folder means."""
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise StoreFull(f"{self.folder}: no space is left for a copy; free some, then try again") from error
            if isinstance(error, PermissionError) or error.errno == errno.EROFS:
                raise StoreReadOnly(f"{self.folder} may not be written; check its owner and mode") from error
            raise StoreBroken(f"{self.folder}: a copy cannot be written ({error.strerror})") from error


class StillThere:
    """Guard of a record: the copies that its message needs stand. `other`: the guard that is asked with it."""

    def __init__(self, custody: Custody, digests: Sequence[str], other: Guard | None) -> None:
        self._places = [custody.path(digest) for digest in digests]
        self._other = other
        self.partition = PURPOSE if other is None else other.partition

    def members(self, cursor: Cursor, limit: int) -> dict[str, Member]:
        return {} if self._other is None else self._other.members(cursor, limit)

    def check(self, members: Mapping[str, Member], state: State | None) -> None:
        if self._other is not None:
            self._other.check(members, state)
        for place in self._places:
            if not place.exists():
                raise MediaReleased(f"{place} was removed before its message was recorded: hand the message over again")


@contextlib.contextmanager
def _reading(name: str, source: str | bytes, max_bytes: int) -> Generator[Iterator[bytes]]:
    """The content in pieces, once it is sure that it may be taken."""
    if isinstance(source, bytes):
        measured(name, len(source), max_bytes)
        yield (source[at : at + MEDIA_PIECE_BYTES] for at in range(0, len(source), MEDIA_PIECE_BYTES))
        return
    fd = _open(source)
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise InvalidMedia(f"{source} is {_sort(before.st_mode)} and no file: attach a file")
        measured(source, before.st_size, max_bytes)
        yield _pieces(fd, source, before)
    finally:
        os.close(fd)


def _open(source: str) -> int:
    try:
        return os.open(source, _READ)
    except FileNotFoundError as error:
        raise InvalidMedia(f"{source} is not there: check the path of the attachment") from error
    except PermissionError as error:
        raise InvalidMedia(f"{source} may not be read by this process: check its owner and mode") from error
    except (OSError, ValueError) as error:
        raise InvalidMedia(f"{source!r} cannot be opened ({error}): check the path of the attachment") from error


def _pieces(fd: int, source: str, before: os.stat_result) -> Iterator[bytes]:
    """All of a file; refused where it changed since `before`."""
    left = before.st_size
    while True:
        try:
            piece = os.read(fd, min(MEDIA_PIECE_BYTES, left + 1))
        except OSError as error:
            raise InvalidMedia(f"{source} cannot be read ({error.strerror}): check its disk") from error
        left -= len(piece)
        now = os.fstat(fd)
        if left < 0 or (not piece and left) or (before.st_size, before.st_mtime_ns) != (now.st_size, now.st_mtime_ns):
            raise InvalidMedia(f"{source} changed while it was read: attach it once it is written")
        if not piece:
            return
        yield piece


def measured(what: str, size: int, max_bytes: int) -> None:
    """Raises `InvalidMedia` where a file of so many bytes may not go along."""
    if size == 0:
        raise InvalidMedia(f"{what} is empty: attach it once it is written")
    if size > max_bytes:
        raise InvalidMedia(f"{what} has {size} bytes, the most is {max_bytes}: send a smaller file, or a link to it")


def _sort(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _counted(digest: Streamed, piece: bytes) -> int:
    digest.update(piece)
    return len(piece)


def _write(fd: int, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _locked(fd: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
