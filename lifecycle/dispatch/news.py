"""What other processes did to intents that somebody here waits for. However often they write and however many wait, it
is asked page by page, one page at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import apsw

from ...ledger.dossier import Dossier
from ...ledger.errors import LedgerError
from ...ledger.limits import PAGE_ROWS
from ...ledger.store.apply import dossier_of
from ...ledger.store.clock import Clock
from ...ledger.store.store import Store
from ...projections.intents import not_moving
from ...projections.waiting import Waiters


class News:
    """One per dispatcher. `in_hand` says of which intents it hears anyway."""

    def __init__(self, store: Store, waiters: Waiters, clock: Clock, *, in_hand: Callable[[str], bool]) -> None:
        self._store = store
        self._waiters = waiters
        self._clock = clock
        self._in_hand = in_hand
        self._again = False
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Another process has written: tell those who wait for what it brought to rest."""
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        with contextlib.suppress(LedgerError):  # whoever waits looks for itself when its time is over
            while self._again:
                self._again = False
                left = [id for id in self._waiters.streams() if not self._in_hand(id)]
                for at in range(0, len(left), PAGE_ROWS):
                    for dossier in await self._store.read(_resting, left[at : at + PAGE_ROWS]):
                        self._waiters.tell(dossier, self._clock.wall_ms())


def _resting(cursor: apsw.Cursor, ids: Sequence[str]) -> list[Dossier]:
    found: list[Dossier] = []
    for id in not_moving(cursor, ids):
        with contextlib.suppress(LedgerError):
            found.append(dossier_of(cursor, id))
    return found
