"""The `sessions` view: one row a session key, and which session it leads to now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from ..ledger.errors import KeyTaken
from ..ledger.fold import Member, State, named
from ..ledger.session import SessionState, Span
from .inbound import OWED
from .intents import OPEN, Cursor

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


class SessionSpansView:
    """Every session id that a key ever had, and where its conversation begins. See `ledger.store.view.View`."""

    name = "session_spans"
    version = 2
    columns = ("session_id", "session", "since", "reason")
    key = ("session_id", "session")
    fixed = ("since", "reason")
    ddl = (
        "CREATE TABLE IF NOT EXISTS session_spans (session_id TEXT NOT NULL, session TEXT NOT NULL,"
        " since INTEGER NOT NULL, reason TEXT, PRIMARY KEY (session_id, session)) STRICT, WITHOUT ROWID",
        "CREATE INDEX IF NOT EXISTS session_spans_since ON session_spans(session, since)",
    )

    def rows(self, state: State) -> Iterable[tuple[object, ...]]:
        if not isinstance(state, SessionState):
            return ()
        return [(span.session_id, state.id, span.since, span.reason) for span in state.spans]


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


ALL_COLUMNS: Final = ", ".join(name for name, _ in COLUMNS)
LAST_HEARD: Final = (
    "SELECT recorded_at FROM inbound INDEXED BY inbound_heard WHERE session = ? AND addressed = 1"
    " ORDER BY position DESC LIMIT 1"
)
BEFORE: Final = (
    "SELECT recorded_at, position FROM inbound INDEXED BY inbound_heard WHERE session = ? AND addressed = 1"
    " AND position < ? ORDER BY position DESC LIMIT 1"
)
SPAN_AT: Final = (
    "SELECT session_id, since, reason FROM session_spans INDEXED BY session_spans_since"
    " WHERE session = ? AND since < ? ORDER BY since DESC LIMIT 1"
)
BUSY: Final = f"""
SELECT EXISTS (SELECT 1 FROM inbound INDEXED BY inbound_lane WHERE {OWED} AND hold IS NULL AND session = ?)
  OR EXISTS (SELECT 1 FROM intents INDEXED BY intents_lane WHERE holds_lane IS NOT NULL AND {OPEN} AND session = ?)
  OR EXISTS (SELECT 1 FROM intents INDEXED BY intents_held WHERE hold IS NOT NULL AND {OPEN} AND session = ?)
"""
"""Over the small indexes of what is open: it costs what is owed, not what the session ever said."""


def by_session_key(cursor: Cursor, key: str) -> SessionRow | None:
    """The session with that key, given as its digest."""
    row = cursor.execute(f"SELECT {ALL_COLUMNS} FROM sessions WHERE key = ?", (key,)).fetchone()
    return None if row is None else SessionRow(*row)


def last_heard(cursor: Cursor, key: str) -> int | None:
    """When the last message of a session that speaks to us came in (UTC ms)."""
    row = cursor.execute(LAST_HEARD, (key,)).fetchone()
    return None if row is None else row[0]


def before_in_session(cursor: Cursor, key: str, position: int) -> tuple[int, int] | None:
    """When the message before that position that speaks to us came in, and its position."""
    return cursor.execute(BEFORE, (key, position)).fetchone()


def span_at(cursor: Cursor, stream: str, position: int) -> Span | None:
    """The session id that a key had at that position; None before its first."""
    row = cursor.execute(SPAN_AT, (stream, position)).fetchone()
    return None if row is None else Span(*row)


def is_busy(cursor: Cursor, key: str) -> bool:
    """Whether a turn or an obligation of the session is open."""
    return bool(cursor.execute(BUSY, (key, key, key)).fetchone()[0])


def pending_resumes(cursor: Cursor) -> list[tuple[str, str]]:
    """(inbound message, session) of each session that waits to be resumed."""
    return cursor.execute("SELECT resume, id FROM sessions WHERE resume IS NOT NULL").fetchall()


def waits_for_a_person(cursor: Cursor, inbound: str) -> bool:
    """Whether a turn is owed and will not run by itself."""
    held = "SELECT EXISTS (SELECT 1 FROM inbound WHERE id = ? AND hold IS NOT NULL)"
    return bool(cursor.execute(held, (inbound,)).fetchone()[0])


def settled_by(cursor: Cursor, inbound: str) -> Literal["completed", "dropped", "sent"] | None:
    """What ended the wait for an interrupted turn: its end, or the reply that it owed."""
    row = cursor.execute("SELECT status FROM inbound WHERE id = ?", (inbound,)).fetchone()
    match None if row is None else row[0]:
        case "completed":
            return "completed"
        case "dropped":
            return "dropped"
        case _:
            sent = "SELECT EXISTS (SELECT 1 FROM intents WHERE inbound = ? AND status = 'sent')"
            return "sent" if cursor.execute(sent, (inbound,)).fetchone()[0] else None
