"""What people ask of the `intents` view: by any filter, by the start of an id, and what stands before one in its lane.

Reads only. Raw ids of chats and sessions never come here: the caller hashes them first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from .intents import ALL_COLUMNS, OPEN, Cursor, Row

FIELDS: Final = ("status", "channel", "account", "place", "session", "failure")


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Values of one field are alternatives, fields are all required; an empty tuple asks nothing. Times: UTC ms."""

    status: tuple[str, ...] = ()
    channel: tuple[str, ...] = ()
    account: tuple[str, ...] = ()
    place: tuple[str, ...] = ()
    session: tuple[str, ...] = ()
    failure: tuple[str, ...] = ()
    owed: bool = False
    since: int | None = None
    until: int | None = None
    platform_id: str | None = None

    def where(self) -> tuple[str, list[Any]]:
        """The condition and its parameters."""
        parts: list[str] = []
        values: list[Any] = []
        for name in FIELDS:
            wanted: tuple[str, ...] = getattr(self, name)
            if wanted:
                parts.append(f"{name} IN ({', '.join('?' * len(wanted))})")
                values += wanted
        if self.owed:
            parts.append(OPEN)
        if self.since is not None:
            parts.append("recorded_at >= ?")
            values.append(self.since)
        if self.until is not None:
            parts.append("recorded_at <= ?")
            values.append(self.until)
        if self.platform_id is not None:
            parts.append("id IN (SELECT intent FROM receipts WHERE platform_id = ?)")
            values.append(self.platform_id)
        return (f" WHERE {' AND '.join(parts)}" if parts else ""), values


def search(cursor: Cursor, query: Query, limit: int) -> list[Row]:
    """The newest first; those still owed oldest first, in the order in which they will be sent."""
    where, values = query.where()
    order = "ASC" if query.owed else "DESC"
    rows = cursor.execute(
        f"SELECT {ALL_COLUMNS} FROM intents{where} ORDER BY position {order} LIMIT ?", [*values, limit]
    )
    return [Row(*row) for row in rows]


def count(cursor: Cursor, query: Query) -> int:
    where, values = query.where()
    return cursor.execute(f"SELECT count(*) FROM intents{where}", values).fetchone()[0]


def starting_with(cursor: Cursor, prefix: str, limit: int) -> list[str]:
    """Ids that begin so, in their order."""
    rows = cursor.execute(
        "SELECT id FROM intents WHERE id >= ? AND id < ? ORDER BY id LIMIT ?", (prefix, prefix + "\U0010ffff", limit)
    )
    return [row[0] for row in rows]


def channels_used(cursor: Cursor) -> list[str]:
    """The names of all channels that ever had an intent."""
    return [row[0] for row in cursor.execute("SELECT DISTINCT channel FROM intents ORDER BY channel")]


def before(cursor: Cursor, lane: str, position: int, now: int, limit: int) -> list[Row]:
    """What must be out of the way first: earlier intents that hold the lane at `now`, oldest first."""
    rows = cursor.execute(
        f"SELECT {ALL_COLUMNS} FROM intents WHERE lane = ? AND holds_lane IS NOT NULL AND holds_lane > ?"
        " AND position < ? ORDER BY position LIMIT ?",
        (lane, now, position, limit),
    )
    return [Row(*row) for row in rows]


def in_flight(cursor: Cursor) -> list[tuple[str, str]]:
    """(intent, owner) of every attempt in flight, as far as the ledger knows."""
    rows = cursor.execute("SELECT id, owner FROM intents WHERE status = 'sending' ORDER BY position")
    return [(row[0], row[1]) for row in rows]


def statuses(cursor: Cursor) -> dict[str, int]:
    """How many intents have each status."""
    found: Sequence[tuple[str, int]] = cursor.execute("SELECT status, count(*) FROM intents GROUP BY status").fetchall()
    return dict(found)
