"""The log of events in the order of positions, page by page, and where in it a time stands. Reads only.

A page looks at a bounded stretch, however few of its events are asked for, because the same reader answers the
dispatcher's last looks. Positions are given under the write lock, so none appears later below one that was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ..ledger import codec
from ..ledger.errors import InvalidQuery
from ..ledger.store.history import Recorded, head_position
from ..ledger.store.sql import Cursor

STRETCH_EVENTS: Final = 20_000
"""So many events of the log may be looked at for one page."""
PAGE_EVENTS: Final = 200
"""So many events, which may be large, are in memory at once."""

_COLUMNS: Final = "notification_id, recorded_at, originator_id, originator_version, topic, state"
_BEYOND: Final = f"SELECT {_COLUMNS} FROM stored_events WHERE notification_id > ? AND notification_id <= ?"
_OF_STREAM: Final = (
    f"SELECT {_COLUMNS} FROM stored_events WHERE originator_id = ? AND originator_version >= 0"
    " AND notification_id > ? AND notification_id <= ? ORDER BY originator_version LIMIT ?"
)
_RECORDED_AT: Final = (
    "SELECT recorded_at FROM stored_events WHERE notification_id >= ? ORDER BY notification_id LIMIT 1"
)
_UP_TO: Final = "SELECT recorded_at FROM stored_events WHERE notification_id <= ? ORDER BY notification_id DESC LIMIT 1"


class Page(NamedTuple):
    """`reached`: up to where nothing that was asked for is left out. `head`: the last position that was given."""

    events: list[Recorded]
    reached: int
    head: int


def page(cursor: Cursor, after: int, topics: Sequence[str], stream: str | None) -> Page:
    """The next events beyond a position; no topics: of every type. Raises `InvalidQuery` for one beyond the head."""
    head = checked(cursor, after)
    if stream is not None:
        found = cursor.execute(_OF_STREAM, (stream, after, head, PAGE_EVENTS)).fetchall()
        wanted = [row for row in found if not topics or row[4] in topics]
        upto = head
    else:
        upto = min(head, after + STRETCH_EVENTS)
        among = f" AND topic IN ({', '.join('?' * len(topics))})" if topics else ""
        text = f"{_BEYOND}{among} ORDER BY notification_id LIMIT ?"
        wanted = found = cursor.execute(text, (after, upto, *topics, PAGE_EVENTS)).fetchall()
    events = [
        Recorded(position, recorded_at, stream, version, topic, codec.decode(topic, body))
        for position, recorded_at, stream, version, topic, body in wanted
    ]
    return Page(events, found[-1][0] if len(found) == PAGE_EVENTS else upto, head)


def checked(cursor: Cursor, position: int) -> int:
    """The head of the ledger, where the position is not beyond it."""
    head = head_position(cursor)
    if position > head:
        raise InvalidQuery(
            f"position {position} is beyond the ledger's head, {head}: it comes from another ledger, or from before an"
            " older backup was put back; begin at 0, or at a position of this one"
        )
    return head


def position_at(cursor: Cursor, at: int) -> int:
    """The first position that was recorded at `at` (UTC ms) or later; the next one to be given where none was.

    What has a higher position was never recorded earlier, so this is a search by halves.
    """
    low, high = 1, head_position(cursor) + 1
    while low < high:
        middle = (low + high) // 2
        recorded_at: int | None = cursor.execute(_RECORDED_AT, (middle,)).get
        if recorded_at is not None and recorded_at < at:
            low = middle + 1
        else:
            high = middle
    return low


def recorded_at(cursor: Cursor, position: int) -> int:
    """When the ledger came to that position (UTC ms); 0 before its first. Raises `InvalidQuery` beyond the head."""
    checked(cursor, position)
    return cursor.execute(_UP_TO, (position,)).get or 0


def topics_named(topics: str | Sequence[str] | None) -> tuple[str, ...]:
    """Types of events by name. Raises `InvalidQuery` for one that there is not."""
    named = () if topics is None else (topics,) if isinstance(topics, str) else tuple(topics)
    unknown = [topic for topic in named if topic not in codec.TOPICS]
    if unknown:
        raise InvalidQuery(f"no event type {unknown[0]!r}: there are {', '.join(sorted(codec.TOPICS))}")
    return tuple(dict.fromkeys(named))
