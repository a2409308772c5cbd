"""When the dispatcher looks at an intent, and whether a lease is over: durations on a clock that nobody can set.

What stands in the ledger are wall-clock times, for people and for other hosts. Where that clock was set back behind
the ledger they would lie in the future, so their distance is measured here instead (R10). Memory of one process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

import apsw

from ...ledger.dossier import Dossier
from ...ledger.errors import NoSuchIntent
from ...ledger.fold import HeldStream
from ...ledger.intent import IntentState, Status
from ...ledger.store.apply import dossier_of
from ...ledger.store.clock import Clock
from ...projections.intents import Head
from ...projections.workers import boot_of

log = logging.getLogger("msgledger")

ORPHAN_MS = 1_000
"""How long a claim of our own may stand without an attempt here: it may still be on its way back from the store."""


class Due:
    """One per dispatcher. `poll_ms`: when to look again at what did not come about by its time."""

    def __init__(
        self, clock: Clock, *, worker: str, is_dead: Callable[[str], bool], poll_ms: Callable[[], int]
    ) -> None:
        self._clock = clock
        self._worker = worker
        self._is_dead = is_dead
        self._poll_ms = poll_ms
        self._later: dict[str, tuple[int, int]] = {}
        self._seen: dict[tuple[str, int], int] = {}
        self._set_back: dict[tuple[str, int], int] = {}
        self.boots: dict[str, str | None] = {worker: clock.boot_id}
        """The boot of the host that each worker ran on."""

    def later(self, id: str, head: int, wait_ms: int) -> None:
        """Look at this version of it after so long."""
        self._later[id] = (head, self._clock.boot_ms() + (wait_ms if wait_ms > 0 else self._poll_ms()))

    def at_once(self, id: str, head: int) -> None:
        """Look at this version of it without waiting for its time."""
        self._later[id] = (head, self._clock.boot_ms())

    def anew(self) -> None:
        """Something changed for many: forget what was put off."""
        self._later.clear()

    def keep(self, alive: Collection[str]) -> None:
        """Forget all but these."""
        self._later = {id: later for id, later in self._later.items() if id in alive}
        self._seen = {key: since for key, since in self._seen.items() if key[0] in alive}
        self._set_back = {key: since for key, since in self._set_back.items() if key[0] in alive}

    def at(self, head: Head, now: int) -> int:
        """When to look at it, on the wall clock as it goes now."""
        if head.owner == self._worker and head.id not in self._later:
            self.later(head.id, head.head, ORPHAN_MS)
        elif head.owner is not None and head.owner != self._worker and self._is_dead(head.owner):
            return 0
        boot = self._clock.boot_ms()
        version, until = self._later.get(head.id, (-1, 0))
        if version == head.head:
            return now + until - boot
        if head.status == Status.PENDING and head.updated_at > now:
            since = self._set_back.setdefault((head.id, head.head), boot)
            return now + max(0, head.due_at - head.updated_at) - (boot - since)
        return head.due_at

    def now(self, state: IntentState) -> int:
        """The time to decide by: a wait that was measured counts as waited, whatever the wall clock says."""
        now = self._clock.wall_ms()
        since = self._set_back.get((state.id, state.head))
        due = state.due_at
        if since is None or due is None or state.status is not Status.PENDING or state.updated_at <= now:
            return now
        return max(now, due) if self._clock.boot_ms() - since >= due - state.updated_at else now

    def lease_over(self, state: IntentState) -> bool:
        """Whether every attempt in flight or in doubt is past its lease, on the clock that no correction shortens.

        An attempt of another boot of the host is timed from when it was first seen here.
        """
        boot = self._clock.boot_ms()
        for attempt in state.live:
            began = attempt.boot_ms
            if self.boots.get(attempt.owner) != self._clock.boot_id:
                began = self._seen.setdefault((state.id, attempt.number), boot)
            if boot - began < attempt.deadline_ms + attempt.margin_ms:
                return False
        return True

    def load(self, cursor: apsw.Cursor, ids: Sequence[str]) -> list[Dossier | None]:
        """On the reader thread: the intents with their content and their owners' boots; None for an unreadable one."""
        found: list[Dossier | None] = []
        for id in ids:
            try:
                dossier = dossier_of(cursor, id)
            except (HeldStream, NoSuchIntent) as error:
                log.error("intent %s is left alone: %s", id, error)
                found.append(None)
                continue
            for attempt in dossier.state.live:
                if attempt.owner not in self.boots:
                    self.boots[attempt.owner] = boot_of(cursor, attempt.owner)
            found.append(dossier)
        return found
