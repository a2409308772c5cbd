"""Reading the table of events: functions of a cursor, for `Store.read` and `Store.read_sync`. They never write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from .. import codec, fold, limits
from ..codec import Opaque
from ..events import Event
from ..fold import State
from . import schema
from .append import NEW
from .sql import Cursor
from .streams import catch_up


class Recorded(NamedTuple):
    """An event as the ledger holds it."""

    position: int
    recorded_at: int
    """UTC milliseconds, the writer's clock."""
    stream: str
    version: int
    topic: str
    event: Event | Opaque


class Held(NamedTuple):
    """A stream that is left alone, and why."""

    stream: str
    reason: str
    before: State | None
    """The state before the event that cannot be read."""


def events_of(cursor: Cursor, stream: str) -> list[Recorded]:
    """All events of a stream, in order."""
    found = cursor.execute(schema.STREAM_AFTER, (stream, NEW, limits.EVENTS_PER_STREAM_MAX))
    return [
        Recorded(position, recorded_at, stream, version, topic, codec.decode(topic, body))
        for version, topic, body, position, recorded_at in found
    ]


def history(cursor: Cursor, stream: str) -> list[tuple[Event | Opaque, int, int]]:
    """The same as (event, position, recorded_at): what folds take."""
    found = cursor.execute(schema.STREAM_AFTER, (stream, NEW, limits.EVENTS_PER_STREAM_MAX))
    return [(codec.decode(topic, body), position, at) for _, topic, body, position, at in found]


def state_of(cursor: Cursor, stream: str) -> State | None:
    """The state of a stream; None where there is none. Raises `StreamHeld`."""
    return catch_up(cursor, stream, None)


def page(
    cursor: Cursor, after_position: int, limit: int = limits.PAGE_ROWS, topics: Sequence[str] | None = None
) -> list[Recorded]:
    """The next events of all streams beyond a position; `topics` leaves out all others."""
    among = () if topics is None else tuple(topics)
    found = cursor.execute(schema.page(topics), (after_position, *among, limit))
    return [_recorded(row) for row in found]


def head_position(cursor: Cursor) -> int:
    """The last position that was given; 0 before the first."""
    return cursor.execute(schema.LAST_POSITION).get or 0


def tracked(cursor: Cursor, name: str) -> int | None:
    """How far a follower has come; None where it never was heard of."""
    return cursor.execute(schema.TRACKED, (name,)).get


def folded(cursor: Cursor, after_stream: str = "") -> Iterator[tuple[str, State | Held | None, int]]:
    """Every stream beyond one, in the order of their ids: id, state or why it is held, and how many events it has.

    None for a stream of another program: it is none of ours to read.
    """
    rows = cursor.execute(schema.STREAMS_AFTER, (after_stream,))
    for stream, group in groupby(rows, key=itemgetter(0)):
        events = [_recorded(row) for row in group]
        foreign = codec.is_foreign(events[0].topic)
        yield stream, None if foreign else fold_recorded(stream, events), len(events)


def fold_recorded(stream: str, events: Sequence[Recorded]) -> State | Held:
    """The state of a whole stream, or why it is held."""
    state: State | None = None
    for version, found in enumerate(events):
        if found.version != version:
            return Held(stream, f"stream {stream} has no event {version}; its history is damaged", state)
        try:
            state = fold.evolve(state, stream, found.event, found.position, found.recorded_at)
        except fold.HeldStream as error:
            return Held(stream, f"{error} (position {found.position})", state)
    assert state is not None, "a stream has an event"
    return state


def held_streams(cursor: Cursor) -> list[Held]:
    """Every stream that this version cannot read. Reads the whole ledger."""
    return [state for _, state, _ in folded(cursor) if isinstance(state, Held)]


def _recorded(row: tuple[Any, ...]) -> Recorded:
    stream, version, topic, body, position, recorded_at = row
    return Recorded(position, recorded_at, stream, version, topic, codec.decode(topic, body))
