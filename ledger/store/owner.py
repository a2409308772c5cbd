"""Who works on this ledger and still lives: each worker holds a file lock in `<ledger>.d/` for its life.

The kernel frees the lock at death, whatever becomes of pids and containers. Dead means proved: the file is there and
its lock is free. A missing file proves nothing. A worker never breaks another's lock.

Fork: the lock belongs to the open file, which a forked child would share and keep alive. The descriptor is closed on
exec, and in a forked child at once; so is the ledger itself (`StoreClosed`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import weakref
from collections.abc import Collection
from pathlib import Path
from typing import Final

from ..errors import StoreReadOnly

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_SUFFIX: Final = ".lock"
_ATTEMPTS_MAX: Final = 100


class Owner:
    """The locks of the workers of one ledger, with the one that this worker holds."""

    def __init__(self, ledger: Path) -> None:
        self._folder = ledger.with_name(ledger.name + ".d")
        self._fd: int | None = None

    def hold(self, worker: str) -> None:
        """Take the lock of `worker` until `release` or death. A worker's id is new with each start.

        Call it before the id is told to anyone: from then on a free lock means death.
        """
        if self._fd is not None:
            raise RuntimeError(f"{self._folder}: this owner holds a lock already")
        path = self._path(worker)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            for _ in range(_ATTEMPTS_MAX):
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(fd, fcntl.LOCK_EX)
                if _is_at(fd, path):
                    break
                os.close(fd)  # a sweep removed it between the two calls
            else:
                raise StoreReadOnly(f"{path} is removed again and again; who else works in that folder?")
        except OSError as error:
            raise StoreReadOnly(f"{path} cannot be locked ({error.strerror}): check owner and mode") from error
        self._fd = fd
        _held.add(self)

    def release(self) -> None:
        """Free the lock. The file stays, as the proof that this worker is gone."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def is_dead(self, worker: str) -> bool:
        """True only where it is proved: the worker's file exists and nobody holds its lock."""
        return self._held(worker) is False

    def is_alive(self, worker: str) -> bool:
        """True only where it is proved: the worker's file exists and somebody holds its lock."""
        return self._held(worker) is True

    def _held(self, worker: str) -> bool | None:
        """Whether somebody holds the lock; None where that cannot be said."""
        try:
            fd = os.open(self._path(worker), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that ask do not take each other for the owner
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    def sweep(self, keep: Collection[str]) -> list[str]:
        """Remove the free files of workers that nobody asks about any more; the removed ids."""
        removed: list[str] = []
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return removed
        for name in names:
            worker = name.removesuffix(_SUFFIX)
            if name == worker or worker in keep or not _NAME.fullmatch(worker):
                continue
            with contextlib.suppress(OSError):
                fd = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(self._folder / name)  # while its lock is ours, so that no one takes it meanwhile
                    removed.append(worker)
                finally:
                    os.close(fd)
        return removed

    def _path(self, worker: str) -> Path:
        if not _NAME.fullmatch(worker):
            raise ValueError(f"{worker!r} is no worker id: letters, digits, - and _ only")
        return self._folder / (worker + _SUFFIX)


_held: weakref.WeakSet[Owner] = weakref.WeakSet()


def _let_go() -> None:
    for owner in list(_held):
        owner.release()


os.register_at_fork(after_in_child=_let_go)


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
