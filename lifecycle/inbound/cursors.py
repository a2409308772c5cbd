"""The polling cursor of one account under one credential: how far the platform may forget, durably.

Another credential begins anew, because its offset means nothing to it; a redelivery is known by its key all the same.
"""

from __future__ import annotations

from ...adapters.surface import Channel
from ...ledger import inbound_events as i
from ...ledger.cursor import CursorState
from ...ledger.errors import Conflict, KeyTaken, StaleHead
from ...ledger.limits import CURSOR_EVENTS_MAX, DECIDE_TRIES_MAX
from ...ledger.store.append import NEW, Append
from ...ledger.store.clock import Clock, new_id
from ...ledger.store.crash import crash_point
from ...ledger.store.store import Store
from ...projections.cursors import CursorFree, cursors_of


class Cursors:
    """Of one channel."""

    def __init__(self, store: Store, channel: Channel, *, by: str, clock: Clock) -> None:
        self._store = store
        self._channel = channel
        self._by = by
        self._clock = clock

    async def cursor(self) -> str | None:
        """Where polling begins; None where this credential never polled."""
        found = await self._store.read(cursors_of, self._key()[0])
        return found[0].cursor if found else None

    async def advance(self, cursor: str) -> None:
        """Everything before it is recorded, or done as its policy asks."""
        key, credential = self._key()
        crash_point("before-advance")
        event = i.CursorAdvanced(
            at=self._clock.wall_ms(),
            by=self._by,
            key=key,
            channel=self._channel.name,
            account=self._channel.account,
            credential=credential,
            cursor=cursor,
        )
        for _ in range(DECIDE_TRIES_MAX):
            found = await self._store.read(cursors_of, key)
            if found and found[0].cursor == cursor:
                return
            if not found or found[0].head >= CURSOR_EVENTS_MAX:
                free = CursorFree(key, frozenset(one.id for one in found))
                item = Append(new_id(event.at), (event,), expected=NEW, guard=free)
            else:
                item = Append(found[0].id, (event,))
            [result] = await self._store.append(item)
            if not isinstance(result, Conflict):
                assert isinstance(result.state, CursorState)
                crash_point("after-advance")
                return
            if not isinstance(result, KeyTaken):
                raise result
        raise StaleHead(f"the cursor of {self._channel.name}/{self._channel.account} changes faster than it can be set")

    def _key(self) -> tuple[str, str]:
        """Its key, and the fingerprint of the credential as attempts have it."""
        names, channel = self._store.pseudonyms, self._channel
        credential = names.digest("credential", channel.name, channel.account, channel.credential)
        return names.cursor(channel.name, channel.account, credential), credential
