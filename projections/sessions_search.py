"""How sessions are found, and how many messages and debts each has. The newest first. Reads only."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from .intents import OPEN, Cursor
from .sessions import ALL_COLUMNS, SessionRow

STATUSES: Final = ("active", "suspended", "resume_pending")
_WHERE: Final = {
    "suspended": "suspended IS NOT NULL",
    "resume_pending": "resume IS NOT NULL",
    "active": "suspended IS NULL AND resume IS NULL",
}
_NAMED: Final = (
    "SELECT id FROM sessions WHERE id >= ? AND id < ? UNION SELECT session FROM session_spans"
    " WHERE session_id >= ? AND session_id < ? UNION SELECT id FROM sessions WHERE key = ? LIMIT ?"
)


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Values of one filter are alternatives, of several filters each must hold. The newest first."""

    status: tuple[str, ...] = ()
    channel: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    """Keyed digests."""
    after: int | None = None
    before: int | None = None


class Counted(msgspec.Struct, frozen=True):
    """What a session consists of. `last_at`: UTC milliseconds of the last message that came in."""

    inbound: int
    intents: int
    owed: int
    last_at: int | None


def find(cursor: Cursor, query: SessionQuery, limit: int) -> list[SessionRow]:
    """The first rows that match."""
    where, values = _asked(query)
    rows = cursor.execute(
        f"SELECT {ALL_COLUMNS} FROM sessions WHERE {where} ORDER BY position DESC LIMIT ?", (*values, limit)
    )
    return [SessionRow(*row) for row in rows]


def count(cursor: Cursor, query: SessionQuery) -> int:
    """How many match."""
    where, values = _asked(query)
    [(number,)] = cursor.execute(f"SELECT count(*) FROM sessions WHERE {where}", values)
    return number


def counted(cursor: Cursor, key: str) -> Counted:
    """Of the session with that key, given as its digest."""
    [(inbound, last_at)] = cursor.execute("SELECT count(*), max(recorded_at) FROM inbound WHERE session = ?", (key,))
    [(intents, owed)] = cursor.execute(
        f"SELECT count(*), coalesce(sum({OPEN}), 0) FROM intents WHERE session = ?", (key,)
    )
    return Counted(inbound, intents, owed, last_at)


def named(cursor: Cursor, prefix: str, key: str, limit: int) -> list[str]:
    """The streams that are meant: whose id or a session id begins so, or whose key it is, given as its digest."""
    end = prefix + "\U0010ffff"
    return [row[0] for row in cursor.execute(_NAMED, (prefix, end, prefix, end, key, limit))]


def _asked(query: SessionQuery) -> tuple[str, tuple[Any, ...]]:
    conditions = ["position > ?", "position < ?"]
    values: list[Any] = [query.after or 0, 2**62 if query.before is None else query.before]
    if query.status:
        conditions.append(f"({' OR '.join(_WHERE[status] for status in query.status)})")
    for name in ("channel", "key"):
        wanted: tuple[str, ...] = getattr(query, name)
        if wanted:
            conditions.append(f"{name} IN ({', '.join('?' * len(wanted))})")
            values += wanted
    return " AND ".join(conditions), tuple(values)
