"""Opening a SQLite connection that keeps its word, and saying in our own errors what SQLite said.

A connection here is in WAL mode with `synchronous=FULL`, never less: NORMAL loses acknowledged commits at a power cut.
It never opens a file that is not a ledger for writing, nor one on a network file system.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Final, NamedTuple, cast

import apsw

from .. import errors, limits
from . import schema
from .filesystem import network_mount
from .sql import Connection

SQLITE_MIN: Final = (3, 51, 3)
"""Earlier ones can lose commits when two connections write and checkpoint at once."""
STATEMENTS_CACHED: Final = 200


class Busy:
    """The busy handler: short jittered sleeps, bounded in all. SQLite's own table starves writers for seconds."""

    __slots__ = ("_until", "_wait_s", "until")

    def __init__(self, wait_ms: int) -> None:
        self._wait_s = wait_ms / 1_000
        self._until = 0.0
        self.until: float | None = None
        """On `time.monotonic`: the end of the wait where the caller has a deadline of its own."""

    def __call__(self, count: int) -> bool:
        now = time.monotonic()
        if count == 0:
            self._until = now + self._wait_s
        if now >= (self._until if self.until is None else self.until):
            return False
        time.sleep(random.uniform(limits.BUSY_SLEEP_MIN_S, limits.BUSY_SLEEP_MAX_S))
        return True


class Link(NamedTuple):
    """A connection with the handler that bounds its waits."""

    connection: Connection
    busy: Busy


def failure(error: BaseException, path: Path) -> BaseException:
    """What an error of SQLite means here, with the path and what to do; every other error is itself.

    Use: `raise failure(error, path) from error`.
    """
    if not isinstance(error, apsw.Error):
        return error
    for kind, ours, advice in _MEANING:
        if isinstance(error, kind):
            return ours(f"{path}: {advice} ({error})")
    return errors.StoreBroken(f"{path}: SQLite failed unexpectedly ({type(error).__name__}: {error})")


_MEANING: Final[tuple[tuple[type[apsw.Error], type[errors.LedgerError], str], ...]] = (
    (apsw.BusyError, errors.StoreLocked, "another process holds the lock; see `msgledger doctor` for who works here"),
    (apsw.LockedError, errors.StoreLocked, "another connection of this process holds the lock"),
    (apsw.FullError, errors.StoreFull, "no space is left; free some, then try again"),
    (apsw.ReadOnlyError, errors.StoreReadOnly, "may not be written; check the owner and mode of file and folder"),
    (apsw.PermissionsError, errors.StoreReadOnly, "access is denied; check the owner and mode of file and folder"),
    (apsw.CantOpenError, errors.StoreReadOnly, "cannot be opened; check that the folder exists and may be written"),
    (apsw.NotADBError, errors.NotALedger, "is not a SQLite database; give the path of a ledger or of a new file"),
    (apsw.CorruptError, errors.StoreBroken, "is damaged; restore a backup, and keep this file for a rescue"),
    (apsw.IOError, errors.StoreBroken, "the disk failed; check the system's log"),
    (apsw.ConstraintError, errors.Unappendable, "a row contradicts one that stands"),
    (apsw.TooBigError, errors.Unappendable, "a value is too big for SQLite"),
    (apsw.ThreadingViolationError, errors.StoreClosed, "the ledger is used from a place that may not"),
    (apsw.ForkingViolationError, errors.StoreClosed, "the process forked after opening the ledger; open it anew"),
    (apsw.ConnectionClosedError, errors.StoreClosed, "the ledger was closed"),
)


def mapped(error: BaseException, path: Path) -> BaseException:
    """An error of SQLite as one of ours, its cause kept."""
    ours = failure(error, path)
    if ours is not error:
        ours.__cause__ = error
    return ours


def check_sqlite(version: str | None = None) -> None:
    """Refuse a SQLite that can lose commits."""
    found = apsw.sqlite_lib_version() if version is None else version
    if tuple(int(part) for part in found.split(".")) < SQLITE_MIN:
        raise errors.UnsafeSqlite(
            f"SQLite {found} can lose commits when two connections write at once;"
            f" it needs {'.'.join(map(str, SQLITE_MIN))} or later: upgrade apsw"
        )


def check_place(path: Path) -> None:
    """Refuse a network file system."""
    mount = network_mount(path)
    if mount is not None:
        raise errors.NetworkFileSystem(
            f"{path} is on {mount.kind} ({mount.source} at {mount.point}): SQLite's locks cannot be trusted on a"
            " network file system; put the ledger on a local disk"
        )


def connect(path: Path, *, wait_ms: int, read_only: bool = False, vfs: str | None = None) -> Link:
    """A connection with its settings, to a file that exists. What the file is, `identify` says.

    `vfs` names an apsw VFS; tests inject faults with it.
    """
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
    busy = Busy(wait_ms)
    try:
        opened = apsw.Connection(str(path), flags=flags, vfs=vfs, statementcachesize=STATEMENTS_CACHED)
        connection = cast("Connection", opened)
        try:
            opened.set_busy_handler(busy)
            for text in (
                "PRAGMA synchronous = FULL",
                "PRAGMA fullfsync = ON",
                "PRAGMA checkpoint_fullfsync = ON",
                "PRAGMA foreign_keys = ON",
                "PRAGMA trusted_schema = OFF",
                "PRAGMA temp_store = MEMORY",
                f"PRAGMA cache_size = -{limits.PAGE_CACHE_KIB}",
                f"PRAGMA wal_autocheckpoint = {limits.WAL_CHECKPOINT_PAGES}",
                f"PRAGMA journal_size_limit = {limits.WAL_KEEP_BYTES}",
            ):
                connection.execute(text)
        except BaseException:
            connection.close()
            raise
    except apsw.Error as error:
        raise failure(error, path) from error
    return Link(connection, busy)


def identify(connection: Connection, path: Path) -> bool:
    """True for a ledger that this version reads, False for an empty database; refuses everything else."""
    try:
        application = connection.execute("PRAGMA application_id").get
        version = connection.execute("PRAGMA user_version").get
        objects = connection.execute(schema.OBJECTS).get
    except apsw.Error as error:
        raise failure(error, path) from error
    if application == 0 and version == 0 and objects == 0:
        return False
    if application != schema.APPLICATION_ID:
        raise errors.NotALedger(f"{path} is a SQLite database, but no ledger; give the path of a ledger or a new file")
    if version > schema.SCHEMA_VERSION:
        raise errors.NewerSchema(
            f"{path} has schema {version}, this msgledger knows {schema.SCHEMA_VERSION}: upgrade msgledger"
        )
    return True


def use_wal(connection: Connection, path: Path, wait_ms: int) -> None:
    """Switch the file to WAL, which stays in its header. Two processes may do so at once."""
    until = time.monotonic() + wait_ms / 1_000
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").get
            break
        except apsw.BusyError as error:  # SQLite does not ask the busy handler for this lock
            if time.monotonic() >= until:
                raise failure(error, path) from error
            time.sleep(limits.BUSY_SLEEP_MAX_S)
        except apsw.Error as error:
            raise failure(error, path) from error
    if mode != "wal":
        raise errors.StoreReadOnly(f"{path}: SQLite keeps the journal in mode {mode!r}; the ledger needs WAL")
