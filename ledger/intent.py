"""The intent: its state, and how each event changes it. Pure, total, and without a clock.

Doubt belongs to an attempt. The state keeps the attempts whose outcome nobody knows; a fact moves only the attempt that
it names, pending means that nothing is in doubt, and terminal means terminal: what comes later is recorded and counted
as a contradiction, never applied in silence. The decisions that lead to these events are in `decide.py`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from . import events as e
from .limits import LATE_FACTS_MAX
from .outcome import FailureClass

OPEN_ENDED: Final = 2**63 - 1
"""`holds_lane` of an intent that holds its lane until it ends."""


class Status(StrEnum):
    PENDING = "pending"
    SENDING = "sending"
    COMMITTING = "committing"
    UNKNOWN = "unknown_after_send"
    SENT = "sent"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL: Final = frozenset({Status.SENT, Status.FAILED, Status.CANCELLED})
AFTER_THE_END: Final = (e.UnitAccepted, e.AttemptFailed, e.DeliveryReported, e.Dismissed)
"""What may still be recorded of an intent that has ended. A decision about it has no effect."""


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
    reopened: bool = False
    """A person said `not sent`: the next attempt goes out on that word."""

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

    def droppable(self, unit: int) -> bool:
        """A unit whose failure does not fail the batch."""
        return self.atomicity == "best_effort_parts" or not self.units[unit].required

    def holds_lane(self) -> int | None:
        """Until when (UTC ms) later messages of the lane wait for this one; None: it is out of the way."""
        if self.terminal:
            return self.lease_ends_at if self.reason == "discarded" else None
        if self.hold is not None and self.status is not Status.SENDING:
            return self.lease_ends_at
        return OPEN_ENDED


def record(stream: str, event: e.IntentRecorded, position: int, recorded_at: int) -> IntentState:
    """The state after the first event."""
    return IntentState(
        id=stream,
        position=position,
        head=0,
        recorded_at=recorded_at,
        updated_at=recorded_at,
        key=event.key,
        content_mac=event.content_mac,
        action=event.action,
        of=event.of,
        channel=event.channel,
        account=event.account,
        lane=event.lane,
        place=event.place,
        relation=event.relation,
        origin=event.origin.source,
        session=event.session,
        inbound=event.inbound,
        durability=event.durability,
        policy=event.policy,
        units=event.units,
        atomicity=event.atomicity,
        at=event.at,
        due_at=event.at if event.not_before is None else event.not_before,
    )


def known(state: IntentState, event: e.Event) -> bool:
    """Whether the ledger has this fact already: then it is dropped, and nothing is appended."""
    match event:
        case e.UnitAccepted():
            got = state.receipts.get(event.unit)
            if got is not None and event.attempt in got.attempts and _ids(got.parts) == _ids(event.parts):
                return True
            return _late_key(event) in state.late
        case e.AttemptFailed():
            return bool(state.ended_mask >> event.attempt & 1) or event.unit in state.gaps
        case _:
            return False


def evolve(state: IntentState, event: e.Event, recorded_at: int) -> IntentState:
    """The state after a later event of the stream."""
    state = replace(state, head=state.head + 1, updated_at=recorded_at)
    if state.terminal and not isinstance(event, AFTER_THE_END):
        return state
    match event:
        case e.UnitAccepted():
            return _accepted(state, event)
        case e.AttemptFailed():
            return _failed(state, event)
        case e.AttemptStarted():
            return _started(state, event)
        case e.IntentCommitted():
            return _ended(state, Status.SENT, None)
        case e.OutcomeUnknown():
            return _unknown(state, event)
        case e.OutcomeReconciled():
            return _reconciled(state, event)
        case e.IntentFailed():
            failed = replace(state, failure=event.failure or state.failure, code=event.code or state.code)
            return _ended(failed, Status.FAILED, event.reason)
        case e.IntentCancelled():
            return _ended(state, Status.CANCELLED, event.reason)
        case e.IntentHeld():
            return replace(state, hold=event.hold, config=event.config)
        case e.BatchPlanned():
            return _planned(state, event)
        case e.DeliveryReported():
            return replace(state, delivery=event.state)
        case e.Dismissed():
            return replace(state, dismissed=True)
        case _:
            return state


def _started(state: IntentState, event: e.AttemptStarted) -> IntentState:
    attempt = Attempt(
        number=event.attempt,
        owner=event.owner,
        at=event.at,
        deadline_ms=event.deadline_ms,
        margin_ms=event.margin_ms,
        boot_ms=event.boot_ms,
        credential=event.credential,
        tries=event.units,
        marked=event.marked,
        licence=event.licence,
    )
    return replace(
        state,
        status=Status.SENDING,
        current=attempt,
        attempts=event.attempt,
        charged=state.charged + 1,
        hold=None,
        config=None,
        due_at=None,
        reopened=False,
    )


def _accepted(state: IntentState, event: e.UnitAccepted) -> IntentState:
    if state.terminal or event.unit in state.gaps:
        return _contradicted(state, event)
    got = state.receipts.get(event.unit)
    copies = state.copies
    if got is None:
        got = Got(event.parts, (event.attempt,))
        copies += _was_marked(state, event.attempt)
    else:
        if _ids(got.parts) != _ids(event.parts):
            copies += 1
            state = replace(state, late=_remember(state, event))
        got = Got(got.parts, (*got.attempts, event.attempt))
    current = state.current
    own = state.status is Status.SENDING and current is not None and current.number == event.attempt
    state = replace(
        state,
        receipts={**state.receipts, event.unit: got},
        doubt=tuple(attempt for attempt in state.doubt if attempt.unit != event.unit),
        copies=copies,
        failures=0,
        accepted_at=event.at if state.accepted_at is None else state.accepted_at,
    )
    if state.status is Status.SENDING:
        if own and state.next_unit is None:
            return _committing(state)
        return state  # an open attempt ends first, also where a fact from elsewhere settled what it is about
    if not state.owes:
        return _committing(state)
    if state.status is Status.UNKNOWN and not state.doubt and state.hold is None:
        return replace(state, status=Status.PENDING, due_at=event.at)
    return state


def _failed(state: IntentState, event: e.AttemptFailed) -> IntentState:
    if state.terminal or state.status is Status.COMMITTING:
        return replace(_contradicted(state, event), ended_mask=state.ended_mask | 1 << event.attempt)
    current = state.current
    given_up = event.next_attempt_at is None and event.hold is None and state.droppable(event.unit)
    if current is not None and current.number == event.attempt:
        if given_up:
            state = replace(state, gaps=(*state.gaps, event.unit), failure=event.failure, code=event.code)
            return _committing(state) if state.next_unit is None else state
        state = replace(state, current=None)
    elif any(attempt.number == event.attempt for attempt in state.doubt):
        state = replace(state, doubt=tuple(a for a in state.doubt if a.number != event.attempt))
        if given_up and current is None and not state.doubt:
            state = replace(state, gaps=(*state.gaps, event.unit))
    else:
        return replace(state, late=_remember(state, event), ended_mask=state.ended_mask | 1 << event.attempt)
    free = not event.bytes_left or event.failure is FailureClass.RATE_LIMIT
    state = replace(
        state,
        charged=state.charged - free,
        failures=state.failures + 1,
        failure=event.failure,
        code=event.code,
        ended_mask=state.ended_mask | 1 << event.attempt,
    )
    if state.current is not None:
        return state
    if not state.owes:
        return _committing(state)
    if state.status is Status.UNKNOWN and (state.doubt or state.hold is not None):
        return state
    if state.doubt:
        return replace(state, status=Status.UNKNOWN, due_at=event.next_attempt_at or event.at)
    return replace(
        state,
        status=Status.PENDING,
        due_at=event.next_attempt_at,
        hold=event.hold,
        config=event.config,
        refused=event.next_attempt_at is None and event.hold is None and not given_up,
    )


def _unknown(state: IntentState, event: e.OutcomeUnknown) -> IntentState:
    current = state.current
    if current is None or current.number != event.attempt:
        return state  # a decision about an attempt that has ended already
    doubtful = () if event.unit in state.receipts else (replace(current, unit=event.unit),)
    state = replace(state, current=None, doubt=(*state.doubt, *doubtful), failures=state.failures + 1)
    if not state.owes:
        return _committing(state)
    if not state.doubt:
        return replace(state, status=Status.PENDING, due_at=event.at)
    return replace(
        state,
        status=Status.UNKNOWN,
        reason=event.cause.value,
        due_at=event.next_check_at,
        hold=event.hold,
        checks=0,
    )


def _reconciled(state: IntentState, event: e.OutcomeReconciled) -> IntentState:
    if event.unit in state.receipts:
        return state  # a receipt beats a verdict
    person = event.by.startswith("operator:")
    reopened = person and event.verdict == "not_sent"
    if event.verdict == "unresolved":
        checks = state.checks + event.counted
        return replace(state, checks=checks, due_at=event.next_check_at, hold=event.hold or state.hold)
    if event.verdict == "sent":
        state = replace(
            state,
            receipts={**state.receipts, event.unit: Got(event.parts, event.attempts)},
            doubt=tuple(attempt for attempt in state.doubt if attempt.unit != event.unit),
            accepted_at=event.at if state.accepted_at is None else state.accepted_at,
            failures=0,
        )
        if not state.owes:
            return _committing(state)
    else:
        state = replace(state, doubt=tuple(a for a in state.doubt if a.number not in event.attempts))
    if state.doubt or (state.hold is not None and not person):
        return replace(state, due_at=event.next_check_at)
    return replace(state, status=Status.PENDING, due_at=event.at, hold=None, checks=0, reopened=reopened, reason=None)


def _planned(state: IntentState, event: e.BatchPlanned) -> IntentState:
    return replace(
        state,
        plan=event.plan,
        units=event.units,
        atomicity=event.atomicity,
        gaps=(),
        refused=False,
        due_at=event.at,
    )


def _committing(state: IntentState) -> IntentState:
    return replace(state, status=Status.COMMITTING, current=None, hold=None, due_at=0, reason=None)


def _ended(state: IntentState, status: Status, reason: str | None) -> IntentState:
    """Terminal: what is still in doubt stays known, because it may hold the lane until its lease end."""
    return replace(
        state, status=status, reason=reason, current=None, doubt=state.live, hold=None, due_at=None, refused=False
    )


def _contradicted(state: IntentState, event: e.UnitAccepted | e.AttemptFailed) -> IntentState:
    return replace(state, contradictions=state.contradictions + 1, late=_remember(state, event))


def _was_marked(state: IntentState, number: int) -> bool:
    return any(attempt.number == number and attempt.marked for attempt in state.live)


def _ids(parts: tuple[e.AcceptedPart, ...]) -> tuple[str | None, ...]:
    return tuple(part.id for part in parts)


def _late_key(event: e.UnitAccepted | e.AttemptFailed) -> str:
    if isinstance(event, e.AttemptFailed):
        return f"failed {event.attempt}.{event.unit}"
    return f"accepted {event.attempt}.{event.unit} {','.join(id or '' for id in _ids(event.parts))}"


def _remember(state: IntentState, event: e.UnitAccepted | e.AttemptFailed) -> tuple[str, ...]:
    return (*state.late, _late_key(event))[-LATE_FACTS_MAX:]
