"""Holds that a configuration makes and ends: a channel that is gone, and one whose settings have changed.

An intent held for its configuration is let go when the channel's fingerprint differs from the one it was held with; one
whose channel no living worker serves is held as `channel`, so that people see it, and let go when one does. Nothing is
sent here: what is let go is due again, in the order of its lane.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ...adapters.gate import Account
from ...adapters.surface import Channel
from ...ledger import events as e
from ...ledger.limits import GROUP_APPENDS_MAX, WORKERS_MAX
from ...ledger.steps import Terms
from ...ledger.store.append import Append
from ...ledger.store.clock import Clock
from ...ledger.store.store import Store
from ...projections.intents import HeldRow, held, pending_elsewhere
from ...projections.workers import not_stopped

log = logging.getLogger("msgledger")

ORPHANS_AFTER_MS = 60_000
"""How long a gateway works before it looks for messages whose channel nobody serves."""
ORPHANS_EVERY_MS = 600_000


class Holds:
    """One per dispatcher."""

    def __init__(
        self,
        store: Store,
        channels: Mapping[Account, Channel],
        *,
        by: str,
        clock: Clock,
        terms: Callable[[Channel], Terms],
        is_dead: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._channels = channels
        self._by = by
        self._terms = terms
        self._is_dead = is_dead
        self._clock = clock
        self._known: dict[Account, str] | None = None
        self._orphans_at = clock.boot_ms() + ORPHANS_AFTER_MS

    async def tend(self) -> bool:
        """Let go and hold what has to be; cheap where nothing changed. Returns whether something may be due now."""
        now = {account: self._terms(channel).config for account, channel in self._channels.items()}
        changed = now != self._known
        if changed:
            freed = await self.release(self._clock.wall_ms())
            self._known = now
            if freed:
                log.info("%d held intents are let go", freed)
        if self._clock.boot_ms() >= self._orphans_at:
            self._orphans_at = self._clock.boot_ms() + ORPHANS_EVERY_MS
            gone = await self.hold_orphans(self._clock.wall_ms())
            if gone:
                log.warning("%d intents wait for a channel that nobody serves", gone)
        return changed

    async def release(self, at: int) -> int:
        """Let go what a present channel's configuration no longer holds; returns how many."""
        released, after = 0, 0
        while rows := await self._store.read(held, after, GROUP_APPENDS_MAX):
            after = rows[-1].position
            free = [row for row in rows if self._free(row)]
            if free:
                event = e.IntentHeld(at=at, by=self._by)
                await self._store.append(*(Append(row.id, (event,), expected=row.head) for row in free))
                released += len(free)
        return released

    async def hold_orphans(self, at: int) -> int:
        """Hold what waits for a channel that no living worker serves; returns how many."""
        rows = await self._store.read(pending_elsewhere, [f"{name}/{account}" for name, account in self._channels])
        if not rows:
            return 0
        found = await self._store.read(not_stopped, WORKERS_MAX)
        served = {account for worker in found if not self._is_dead(worker.id) for account in worker.channels}
        gone = [row for row in rows if f"{row.channel}/{row.account}" not in served]
        if gone:
            event = e.IntentHeld(at=at, by=self._by, hold="channel")
            await self._store.append(*(Append(row.id, (event,), expected=row.head) for row in gone))
        return len(gone)

    def _free(self, row: HeldRow) -> bool:
        channel = self._channels.get((row.channel, row.account))
        if channel is None:
            return False
        return row.hold == "channel" or row.config != self._terms(channel).config
