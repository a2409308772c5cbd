"""The `sessions` view: one row a session key, and which session it leads to now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from ..ledger.errors import KeyTaken
from ..ledger.fold import Member, State, named
from ..ledger.session import SessionState
from .intents import Cursor

COLUMNS: Final = (
    ("id", "TEXT PRIMARY KEY"),
    ("key", "TEXT NOT NULL"),
    ("session_id", "TEXT NOT NULL"),
    ("shown", "TEXT NOT NULL"),
    ("channel", "TEXT NOT NULL"),
    ("kind", "TEXT NOT NULL"),
    ("position", "INTEGER NOT NULL"),
    ("head", "INTEGER NOT NULL"),
    ("since", "INTEGER NOT NULL"),
    ("begun_at", "INTEGER NOT NULL"),
    ("reason", "TEXT"),
    ("suspended", "TEXT"),
    ("resume", "TEXT"),
    ("resume_at", "INTEGER"),
    ("interrupted", "INTEGER NOT NULL"),
    ("recorded_at", "INTEGER NOT NULL"),
    ("updated_at", "INTEGER NOT NULL"),
)
"""`key`: keyed digest, the `session` of intents and inbound messages. `since`: where the present session began."""


class SessionsView:
    """See `ledger.store.view.View`."""

    name = "sessions"
    version = 1
    columns = tuple(name for name, _ in COLUMNS)
    key = ("id",)
    fixed = ("key", "shown", "channel", "kind", "position", "recorded_at")
    ddl = (
        f"CREATE TABLE IF NOT EXISTS sessions ({', '.join(f'{name} {kind}' for name, kind in COLUMNS)})"
        " STRICT, WITHOUT ROWID",
        "CREATE UNIQUE INDEX IF NOT EXISTS sessions_key ON sessions(key)",
        "CREATE INDEX IF NOT EXISTS sessions_session_id ON sessions(session_id)",
        "CREATE INDEX IF NOT EXISTS sessions_resume ON sessions(resume) WHERE resume IS NOT NULL",
    )

    def rows(self, state: State) -> Iterable[tuple[object, ...]]:
        if not isinstance(state, SessionState):
            return ()
        return (
            (
                state.id,
                state.key,
                state.session_id,
                state.shown,
                state.channel,
                state.kind,
                state.position,
                state.head,
                state.since,
                state.begun_at,
                state.reason,
                state.suspended,
                state.resume,
                state.resume_at,
                state.interrupted,
                state.recorded_at,
                state.updated_at,
            ),
        )


class SessionFree:
    """Guard of an opening: the key has no session yet, so that two first messages get one."""

    def __init__(self, key: str) -> None:
        self.partition = named(key)
        self._key = key

    def members(self, cursor: Cursor, limit: int) -> dict[str, Member]:
        found = cursor.execute("SELECT id, position FROM sessions WHERE key = ?", (self._key,))
        return {id: Member(position) for id, position in found}

    def check(self, members: Mapping[str, Member], state: State | None) -> None:
        for id in members:
            raise KeyTaken(id, "session")


class SessionRow(msgspec.Struct, frozen=True, gc=False):
    """One row of the view; the fields are its columns, times in UTC milliseconds."""

    id: str
    key: str
    session_id: str
    shown: str
    channel: str
    kind: str
    position: int
    head: int
    since: int
    begun_at: int
    reason: str | None
    suspended: str | None
    resume: str | None
    resume_at: int | None
    interrupted: int
    recorded_at: int
    updated_at: int


def by_session_key(cursor: Cursor, key: str) -> str | None:
    """The stream of the session with that key, given as its digest."""
    row = cursor.execute("SELECT id FROM sessions WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]
