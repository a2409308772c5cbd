"""One intent as it stood: the events that count at a position or a time, by one of two clocks.

`recorded_at` asks what the ledger knew then; `at` asks what had happened by then, as far as is known today. Either way
what counts is the beginning of the history, so every answer is a state that did stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Literal, NamedTuple

from ..ledger.codec import Opaque
from ..ledger.errors import InvalidQuery, NoSuchIntent
from ..ledger.store.history import Recorded, events_of
from ..ledger.store.sql import Cursor
from .log import checked
from .query import Moment, moment_ms, position_of

By = Literal["position", "recorded_at", "at"]


class Cut(NamedTuple):
    """Until where the history counts, this position or time included; times are UTC milliseconds."""

    by: By
    value: int

    def __str__(self) -> str:
        match self.by:
            case "position":
                return f"as of position {self.value}"
            case "recorded_at":
                return f"as known at {_time(self.value)}"
            case "at":
                return f"as it had happened by {_time(self.value)}"

    def holds(self, one: Recorded) -> bool:
        """Whether that event counts. One that cannot be read happened when it was recorded, as far as we know."""
        match self.by:
            case "position":
                return one.position <= self.value
            case "recorded_at":
                return one.recorded_at <= self.value
            case "at":
                return (one.recorded_at if isinstance(one.event, Opaque) else one.event.at) <= self.value


def cut(position: int | None, recorded_at: Moment | None, at: Moment | None) -> Cut:
    """From the one of the three that is given. Raises `InvalidQuery`."""
    if sum(value is not None for value in (position, recorded_at, at)) != 1:
        raise InvalidQuery("as_of takes one of position, recorded_at (what was known then) and at (what had happened)")
    if recorded_at is not None:
        return Cut("recorded_at", moment_ms("recorded_at", recorded_at))
    if at is not None:
        return Cut("at", moment_ms("at", at))
    assert position is not None
    return Cut("position", position_of("position", position))


def history(cursor: Cursor, intent: str, cut: Cut | None = None) -> list[Recorded]:
    """The events of an intent that count; at least one.

    Raises `NoSuchIntent`, also where it did not exist yet, and `InvalidQuery` for a position that was not given yet.
    """
    events = events_of(cursor, intent)
    if not events:
        raise NoSuchIntent(f"no intent {intent}: give the whole id of one")
    if cut is not None and cut.by == "position":
        checked(cursor, cut.value)
    return kept(events, cut)


def kept(events: Sequence[Recorded], cut: Cut | None) -> list[Recorded]:
    """The beginning of a history that counts. Raises `NoSuchIntent` where nothing of it does."""
    if cut is None:
        return list(events)
    found = list(takewhile(cut.holds, events))
    if not found:
        first = events[0]
        raise NoSuchIntent(
            f"intent {first.stream} did not exist yet, {cut}:"
            f" it was recorded at position {first.position}, {_time(first.recorded_at)}"
        )
    return found


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
