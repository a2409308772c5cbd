"""The intent: its state, and what follows from it. No content, no clock.

Doubt belongs to an attempt. The state keeps the attempts whose outcome nobody knows; a fact moves only the attempt that
it names, pending means that nothing is in doubt, and terminal means terminal: what comes later is recorded and counted
as a contradiction, never applied in silence. The decisions that lead to these events are in `decide.py`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from . import events as e
from .outcome import FailureClass

OPEN_ENDED: Final = 2**63 - 1
"""`holds_lane` and `needs_media` of an intent that holds its lane, or needs its files, until it ends."""


class Status(StrEnum):
    PENDING = "pending"
    SENDING = "sending"
    COMMITTING = "committing"
    UNKNOWN = "unknown_after_send"
    SENT = "sent"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL: Final = frozenset({Status.SENT, Status.FAILED, Status.CANCELLED})


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """An attempt in flight or in doubt. `unit` is the one in doubt; all times in milliseconds."""

    number: int
    owner: str
    at: int
    deadline_ms: int
    margin_ms: int
    boot_ms: int
    credential: str
    tries: tuple[e.UnitTry, ...]
    marked: bool
    licence: e.Licence
    unit: int = 0

    def marks(self, unit: int) -> bool:
        """Whether this attempt sends the unit as a marked copy: only the one in doubt, which is its first."""
        return self.marked and bool(self.tries) and self.tries[0].unit == unit

    @property
    def lease_ends_at(self) -> int:
        return self.at + self.deadline_ms + self.margin_ms


class Got(msgspec.Struct, frozen=True, gc=False):
    """The receipt of one unit, and the attempts that reported it."""

    parts: tuple[e.AcceptedPart, ...]
    attempts: tuple[int, ...]


class IntentState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Everything that decisions and views need to know of an intent; no content."""

    id: str
    position: int
    """Of the first event: the place in its lane."""
    head: int
    recorded_at: int
    updated_at: int
    key: str
    content_mac: str
    action: e.Action
    of: str | None
    channel: str
    account: str
    lane: str
    place: str
    relation: str
    origin: str
    session: str | None
    inbound: str | None
    durability: e.Durability
    policy: e.Policy
    units: tuple[e.PlannedUnit, ...]
    atomicity: e.Atomicity
    at: int
    callback: str | None = None
    """See `IntentRecorded.callback`."""
    plan: int = 0

    status: Status = Status.PENDING
    hold: e.Hold | None = None
    config: str | None = None
    due_at: int | None = None
    """When it may go on; None while another event must come first."""
    refused: bool = False
    """The last failure allows no further attempt: what is missing is the event that ends it."""
    current: Attempt | None = None
    doubt: tuple[Attempt, ...] = ()
    attempts: int = 0
    charged: int = 0
    """Attempts that count against the budget."""
    failures: int = 0
    """Failures in a row: what the backoff grows with."""
    checks: int = 0
    looked: bool = False
    """A look-up since the last attempt did not find it."""
    reopened: bool = False
    """A person said `not sent`: the next attempt goes out on that word."""

    media: dict[str, int] = {}
    """The files whose copies are kept for it, in any of its plans: keyed digest to bytes."""
    receipts: dict[int, Got] = {}
    gaps: tuple[int, ...] = ()
    """Units that are given up without failing the rest."""
    copies: int = 0
    contradictions: int = 0
    failure: FailureClass | None = None
    reason: str | None = None
    code: str | None = None
    delivery: str | None = None
    accepted_at: int | None = None
    dismissed: bool = False
    ended_mask: int = 0
    """Bit n: attempt n has its `AttemptFailed`."""
    late: tuple[str, ...] = ()
    """Keys of facts that came when they could change nothing any more."""
    beside: tuple[tuple[int, tuple[e.AcceptedPart, ...]], ...] = ()
    """Unit and parts of what the platform took beside its receipt: a copy, or what came after the end."""

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def live(self) -> tuple[Attempt, ...]:
        """The attempts whose requests may still be applied: those in doubt and the one in flight."""
        return self.doubt if self.current is None else (*self.doubt, self.current)

    @property
    def lease_ends_at(self) -> int | None:
        """The last moment at which a request of ours may still be applied; None where none is in doubt or in flight."""
        return max((attempt.lease_ends_at for attempt in self.live), default=None)

    @property
    def next_unit(self) -> int | None:
        """The first unit without a receipt that is not given up: the only one that can be in doubt."""
        for index in range(len(self.units)):
            if index not in self.receipts and index not in self.gaps:
                return index
        return None

    @property
    def owes(self) -> bool:
        """Whether a unit is left without which the intent is not sent."""
        return any(
            unit.required and index not in self.receipts and index not in self.gaps
            for index, unit in enumerate(self.units)
        )

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(index for index in range(len(self.units)) if index not in self.receipts)

    @property
    def platform_ids(self) -> tuple[str, ...]:
        """Every id of every part, in the order of the units."""
        return tuple(
            part.id for index in sorted(self.receipts) for part in self.receipts[index].parts if part.id is not None
        )

    @property
    def visible_ids(self) -> tuple[str, ...]:
        """The same, and the ids of what the platform took beside the receipts."""
        others = (part.id for _, parts in self.beside for part in parts if part.id is not None)
        return tuple(dict.fromkeys((*self.platform_ids, *others)))

    def droppable(self, unit: int) -> bool:
        """A unit whose failure does not fail the batch."""
        return self.atomicity == "best_effort_parts" or not self.units[unit].required

    def needs_media(self) -> int | None:
        """Until when (UTC ms) the copies of its files are kept; None: it needs them no more.

        A failed one may be sent again by a person until it is dismissed; of a discarded one a request may still land.
        """
        if not self.terminal or (self.status is Status.FAILED and not self.dismissed):
            return OPEN_ENDED
        return self.lease_ends_at if self.reason == "discarded" else None

    def holds_lane(self) -> int | None:
        """Until when (UTC ms) later messages of the lane wait for this one; None: it is out of the way."""
        if self.terminal:
            return self.lease_ends_at if self.reason == "discarded" else None
        if self.hold is not None and self.status is not Status.SENDING:
            return self.lease_ends_at
        return OPEN_ENDED
