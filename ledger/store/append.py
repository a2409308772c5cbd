"""What is handed to the writer and what comes back. Values only; nothing here touches the disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from .. import codec, limits
from ..errors import Unappendable
from ..events import Event
from ..fold import Member, State
from .sql import Cursor

NEW: Final = -1
"""`expected` of a stream that must not exist yet."""


class Guard(Protocol):
    """A question about the other streams of one partition, asked inside the transaction of the append.

    `partition` is one of those that `fold.memberships` names.
    """

    @property
    def partition(self) -> str: ...
    def members(self, cursor: Cursor, limit: int) -> dict[str, Member]:
        """Those that the views have in the partition: the first `limit` by position, and whatever is in flight."""
        ...

    def check(self, members: Mapping[str, Member], state: State | None) -> None:
        """Raise a `Conflict` to refuse the append. `state`: the append's own stream as it stands; it may be a member.

        Where there are `limits.PARTITION_MEMBERS` or more, those behind the first are left out.
        """
        ...


class Append(msgspec.Struct, frozen=True, gc=False):
    """Events for one stream.

    `expected`: the head that the decision was made on, or `NEW`; any other head refuses with `StaleHead`. None makes
    the events facts: they are appended at whatever head stands, and each that the ledger knows already is dropped.
    """

    stream: str
    events: tuple[Event, ...]
    expected: int | None = None
    guard: Guard | None = None


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Durable. `position` and `head` are those after this append; `state` is the stream's."""

    stream: str
    head: int
    position: int
    """Of its last event; where nothing had to be appended, the ledger's last position."""
    state: State
    recorded_at: int
    """UTC milliseconds, one for all appends of a commit."""
    appended: int
    """How many events were new: fewer than asked for where facts were known already."""


Body = tuple[str, bytes]
"""Topic and JSON."""


def encode(item: Append) -> list[Body]:
    """The bodies of an append's events. Raises `Unappendable` before anything is queued."""
    if not item.events:
        raise Unappendable(f"an append to stream {item.stream} has no events")
    bodies: list[Body] = []
    for event in item.events:
        try:
            topic, body = codec.encode(event)
        except Exception as error:
            raise Unappendable(f"{type(event).__name__} for stream {item.stream} cannot be encoded: {error}") from error
        if codec.TOPICS.get(topic) is not type(event):
            raise Unappendable(f"{topic} is not an event of this ledger; see ledger/events.py")
        if len(body) > limits.EVENT_MAX_BYTES:
            raise Unappendable(
                f"{topic} for stream {item.stream} has {len(body)} bytes, the most is {limits.EVENT_MAX_BYTES}"
            )
        bodies.append((topic, body))
    return bodies
