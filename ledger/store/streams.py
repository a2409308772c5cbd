"""The states of streams as the writer knows them: a bounded cache of committed states over reading and folding.

A state is trusted until another connection commits; from then on each is brought up to date before its next use. States
of the transaction in hand are kept apart until it commits, so that a rollback leaves nothing wrong behind.
"""

from __future__ import annotations

from collections import OrderedDict

from .. import codec, fold, limits
from ..errors import StreamHeld
from ..fold import State
from . import schema
from .append import NEW
from .sql import Cursor


class Streams:
    def __init__(self, cursor: Cursor, capacity: int = limits.STATE_CACHE_STREAMS) -> None:
        self._cursor = cursor
        self._capacity = capacity
        self._generation = 0
        self._committed: OrderedDict[str, tuple[State, int]] = OrderedDict()
        self._touched: dict[str, State] = {}

    def get(self, stream: str, *, begins: bool = False) -> State | None:
        """The state as this transaction sees it; None where the stream does not exist. Raises `StreamHeld`.

        `begins`: the stream should be a new one. The table is not asked; if it has it after all, the insert says so.
        """
        state = self._touched.get(stream)
        if state is not None:
            return state
        found = self._committed.get(stream)
        if found is None:
            return None if begins else catch_up(self._cursor, stream, None)
        state, generation = found
        if generation == self._generation:
            self._committed.move_to_end(stream)
            return state
        return catch_up(self._cursor, stream, state)

    def put(self, stream: str, state: State) -> None:
        """The state after an append of this transaction."""
        self._touched[stream] = state

    def forget(self, stream: str) -> None:
        """Whatever is known of a stream may be wrong."""
        self._touched.pop(stream, None)
        self._committed.pop(stream, None)

    def distrust(self) -> None:
        """Another connection committed: heads are checked before their next use."""
        self._generation += 1

    def committed(self) -> None:
        kept = self._committed
        for stream, state in self._touched.items():
            if fold.ended(state):
                kept.pop(stream, None)  # hardly anything comes after it, and it can be read
                continue
            kept[stream] = (state, self._generation)
            kept.move_to_end(stream)
        self._touched.clear()
        while len(kept) > self._capacity:
            kept.popitem(last=False)

    def drop(self) -> None:
        """After a rollback: start from what the table says."""
        self._touched.clear()
        self._committed.clear()


def catch_up(cursor: Cursor, stream: str, state: State | None) -> State | None:
    """The state after what the table has beyond `state`."""
    head = NEW if state is None else state.head
    rows = cursor.execute(schema.STREAM_AFTER, (stream, head, limits.EVENTS_PER_STREAM_MAX)).fetchall()
    for version, topic, body, position, recorded_at in rows:
        head += 1
        if version != head:
            raise StreamHeld(f"stream {stream} has no event {head}: the next one is {version}; its history is damaged")
        try:
            state = fold.evolve(state, stream, codec.decode(topic, body), position, recorded_at)
        except fold.HeldStream as error:
            raise StreamHeld(f"{error} (position {position})") from error
    return state
