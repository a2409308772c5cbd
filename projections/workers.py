"""The `workers` view: every process that ever opened the ledger to work on it, and whether it said goodbye."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ..ledger.fold import State
from ..ledger.worker import WorkerState
from .intents import Cursor

COLUMNS: Final = (
    *("id", "host", "boot", "pid", "msgledger", "channels", "down", "lost", "interrupted", "started_at", "stopped_at"),
)
NEWEST: Final = f"SELECT {', '.join(COLUMNS)} FROM workers"


class WorkersView:
    """See `ledger.store.view.View`."""

    name = "workers"
    version = 3
    columns = COLUMNS
    key = ("id",)
    fixed = ("host", "boot", "pid", "msgledger", "channels", "interrupted", "started_at")
    ddl = (
        "CREATE TABLE IF NOT EXISTS workers (id TEXT PRIMARY KEY, host TEXT NOT NULL, boot TEXT NOT NULL,"
        " pid INTEGER NOT NULL, msgledger TEXT NOT NULL, channels TEXT NOT NULL, down TEXT NOT NULL,"
        " lost INTEGER NOT NULL, interrupted INTEGER NOT NULL, started_at INTEGER NOT NULL, stopped_at INTEGER) STRICT",
        "CREATE INDEX IF NOT EXISTS workers_started ON workers(started_at)",
        "CREATE INDEX IF NOT EXISTS workers_there ON workers(started_at) WHERE stopped_at IS NULL",
    )

    def rows(self, state: State) -> Iterable[tuple[object, ...]]:
        if not isinstance(state, WorkerState):
            return ()
        return (
            (
                state.id,
                state.host,
                state.boot,
                state.pid,
                state.msgledger,
                msgspec.json.encode(state.channels).decode(),
                " ".join(state.down),
                state.lost,
                state.interrupted,
                state.started_at,
                state.stopped_at,
            ),
        )


class Worker(msgspec.Struct, frozen=True):
    """One row. `channels` maps a channel's name to its version; times are UTC milliseconds."""

    id: str
    host: str
    boot: str
    pid: int
    msgledger: str
    channels: dict[str, str]
    down: tuple[str, ...]
    lost: int
    interrupted: int
    """Turns that its start found cut off by the death of another."""
    started_at: int
    stopped_at: int | None


def workers(cursor: Cursor, limit: int) -> list[Worker]:
    """The newest first."""
    rows = cursor.execute(f"{NEWEST} ORDER BY started_at DESC, id DESC LIMIT ?", (limit,))
    return [_worker(row) for row in rows]


def not_stopped(cursor: Cursor, limit: int) -> list[Worker]:
    """Those that said no goodbye, the newest first: whoever lives is among them, however many came and went since."""
    rows = cursor.execute(f"{NEWEST} WHERE stopped_at IS NULL ORDER BY started_at DESC, id DESC LIMIT ?", (limit,))
    return [_worker(row) for row in rows]


def interrupted_starts(cursor: Cursor, since: int, now: int) -> list[str]:
    """The workers that have started since then (UTC ms) and found turns cut off. What seems to have started later than
    now did so before somebody set the clock back."""
    found = cursor.execute(
        "SELECT id FROM workers WHERE started_at > ? AND started_at <= ? AND interrupted > 0", (since, now)
    )
    return [row[0] for row in found]


def boot_of(cursor: Cursor, worker: str) -> str | None:
    """The boot id of the host that a worker ran on."""
    row = cursor.execute("SELECT boot FROM workers WHERE id = ?", (worker,)).fetchone()
    return None if row is None else row[0]


def _worker(row: tuple[str, str, str, int, str, str, str, int, int, int, int | None]) -> Worker:
    channels = msgspec.json.decode(row[5], type=dict[str, str])
    return Worker(*row[:5], channels, tuple(row[6].split()), *row[7:])
