"""Who stands in a partition: what guards ask about, kept in memory so that most of them need not ask the disk.

A partition is a lane or a key, and its members are the streams that count there. What is known of one is whole, or it
is not kept. It is forgotten when another connection commits, and after a rollback.
"""

from __future__ import annotations

from collections import OrderedDict

from .. import fold, limits
from ..fold import Member, State
from .append import Guard
from .sql import Cursor


class Partitions:
    def __init__(self) -> None:
        self._known: OrderedDict[str, dict[str, Member]] = OrderedDict()
        self._changed: dict[str, dict[str, Member | None]] = {}
        """What this transaction changed, by partition: the views do not show it yet."""

    def members(self, guard: Guard, cursor: Cursor) -> dict[str, Member]:
        """The members of the guard's partition as this transaction sees them. Of a crowded one only the first, and
        what is in flight."""
        partition = guard.partition
        known = self._known.get(partition)
        if known is not None:
            self._known.move_to_end(partition)
            return known
        changed = self._changed.get(partition, {})
        limit = limits.PARTITION_MEMBERS + len(changed)  # so many of them may be gone already
        found = guard.members(cursor, limit)
        whole = len(found) < limit
        for stream, member in changed.items():
            _put(found, stream, member)
        if whole and len(found) <= limits.PARTITION_MEMBERS:
            self._known[partition] = found
            if len(self._known) > limits.PARTITIONS_REMEMBERED:
                self._known.popitem(last=False)
        return found

    def touch(self, stream: str, state: State) -> None:
        """A stream has another state now."""
        for partition, member in fold.memberships(state):
            self._changed.setdefault(partition, {})[stream] = member
            known = self._known.get(partition)
            if known is not None:
                _put(known, stream, member)
                if len(known) > limits.PARTITION_MEMBERS:
                    del self._known[partition]

    def shown(self) -> None:
        """The views show everything that was touched."""
        self._changed.clear()

    def forget(self) -> None:
        """Whatever is known may be wrong."""
        self._known.clear()
        self._changed.clear()


def _put(members: dict[str, Member], stream: str, member: Member | None) -> None:
    if member is None:
        members.pop(stream, None)
    else:
        members[stream] = member
