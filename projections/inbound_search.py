"""How inbound messages are found: by the index of what is owed, of a session or of a conversation, else along the log.

In the order of positions, a page at a time. What no index answers goes through the log of events, so the command line
asks here, which nobody else waits for. Reads only.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec

from ..ledger.inbound import OPEN, InboundStatus
from ..ledger.inbound_events import DropReason, InboundHold
from ..ledger.store.history import head_position
from ..ledger.store.sql import Cursor
from .inbound import COLUMNS, OWED, InboundRow
from .log import position_at

CLOSED: Final[dict[str, tuple[str, ...]]] = {
    "status": tuple(status.value for status in InboundStatus),
    "hold": get_args(InboundHold),
    "dropped": get_args(DropReason),
}
"""The filters whose values are a closed set."""
_COLUMNS: Final = ", ".join(f"i.{name}" for name, _ in COLUMNS)
_LOG: Final = "stored_events e CROSS JOIN inbound i ON i.id = e.originator_id AND i.position = e.notification_id"
_OWED: Final = (
    f"SELECT id FROM inbound INDEXED BY inbound_lane WHERE {OWED} AND hold IS NULL"
    f" UNION ALL SELECT id FROM inbound INDEXED BY inbound_held WHERE hold IS NOT NULL"
)
"""A small index for what is in the way of its lane, and one for what is held."""
_PLACES: Final = "SELECT DISTINCT channel FROM inbound"


class InboundQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Values of one filter are alternatives, of several filters each must hold. Times are UTC milliseconds.

    Newest first, or with `owed` those whose turn is still to be done, oldest first. `after` and `before` are positions,
    both left out.
    """

    status: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    channel: tuple[str, ...] = ()
    account: tuple[str, ...] = ()
    session: tuple[str, ...] = ()
    """Keyed digests of session keys."""
    place: tuple[str, ...] = ()
    owed: bool = False
    since: int | None = None
    until: int | None = None
    after: int | None = None
    before: int | None = None

    @property
    def statuses(self) -> tuple[str, ...]:
        """Those that can match; a held one is open."""
        if not (self.owed or self.hold):
            return self.status or CLOSED["status"]
        return tuple(status.value for status in OPEN if not self.status or status.value in self.status)


def find(cursor: Cursor, query: InboundQuery, limit: int) -> list[InboundRow]:
    """The first rows that match."""
    source, where, values = _asked(cursor, query)
    order = "" if query.owed else " DESC"
    rows = cursor.execute(
        f"SELECT {_COLUMNS} FROM {source} WHERE {where} ORDER BY {_position(source)}{order} LIMIT ?", (*values, limit)
    )
    return [InboundRow(*row) for row in rows]


def count(cursor: Cursor, query: InboundQuery) -> int:
    """How many match."""
    source, where, values = _asked(cursor, query)
    [(number,)] = cursor.execute(f"SELECT count(*) FROM {source} WHERE {where}", values)
    return number


def starting_with(cursor: Cursor, prefix: str, limit: int) -> list[str]:
    """The ids that begin so, in their order."""
    rows = cursor.execute(
        "SELECT id FROM inbound WHERE id >= ? AND id < ? ORDER BY id LIMIT ?", (prefix, prefix + "\U0010ffff", limit)
    )
    return [row[0] for row in rows]


def channels_heard(cursor: Cursor) -> list[str]:
    """Every channel that something ever came in by."""
    return [row[0] for row in cursor.execute(_PLACES)]


def _asked(cursor: Cursor, query: InboundQuery) -> tuple[str, str, tuple[Any, ...]]:
    """Where to look, and for what."""
    if set(query.statuses) <= OPEN:
        source, conditions = "inbound i", [f"i.id IN ({_OWED})"]
    elif query.session:
        source, conditions = "inbound i INDEXED BY inbound_session", ["i.session IS NOT NULL"]
    else:
        source, conditions = _LOG, ["e.originator_version = 0"]
    values: list[Any] = []
    for name in ("status", "hold", "dropped", "channel", "account", "session", "place"):
        wanted: tuple[str, ...] = query.statuses if name == "status" else getattr(query, name)
        if wanted or name == "status":
            conditions.append(f"i.{name} IN ({', '.join('?' * len(wanted))})")
            values += wanted
    low, high = query.after or 0, query.before if query.before is not None else head_position(cursor) + 1
    if query.since is not None:
        low = max(low, position_at(cursor, query.since) - 1)
    if query.until is not None:
        high = min(high, position_at(cursor, query.until + 1))
    conditions.append(f"{_position(source)} > ? AND {_position(source)} < ?")
    return source, " AND ".join(conditions), (*values, low, high)


def _position(source: str) -> str:
    return "e.notification_id" if source is _LOG else "i.position"
