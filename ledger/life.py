"""The intent's life: how each event changes its state. Pure and total; the decisions that lead to events are elsewhere.

A fact moves only the attempt that it names. What comes after the end is recorded and counted, and changes no status.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from . import events as e
from .intent import Attempt, Got, IntentState, Status
from .limits import LATE_FACTS_MAX
from .outcome import FailureClass

AFTER_THE_END: Final = (e.UnitAccepted, e.AttemptFailed, e.DeliveryReported, e.Dismissed)
"""What may still be recorded of an intent that has ended. A decision about it has no effect."""


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
        callback=event.callback,
        due_at=event.at if event.not_before is None else event.not_before,
        media=_media(event.units),
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
        looked=False,
        reopened=False,
    )


def _accepted(state: IntentState, event: e.UnitAccepted) -> IntentState:
    if state.terminal or event.unit in state.gaps:
        return _contradicted(state, event)
    got = state.receipts.get(event.unit)
    copies = state.copies
    if got is None:
        got = Got(event.parts, (event.attempt,))
        copies += _was_marked(state, event)
    else:
        if _ids(got.parts) != _ids(event.parts):
            copies += 1
            state = replace(state, late=_remember(state, event), beside=_beside(state, event))
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
        state = replace(state, ended_mask=state.ended_mask | 1 << event.attempt)
        return _contradicted(state, event) if event.bytes_left else replace(state, late=_remember(state, event))
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
        return replace(state, checks=checks, looked=True, due_at=event.next_check_at, hold=event.hold or state.hold)
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
        media={**state.media, **_media(event.units)},
        atomicity=event.atomicity,
        gaps=(),
        refused=False,
        due_at=event.at,
    )


def _media(units: tuple[e.PlannedUnit, ...]) -> dict[str, int]:
    return {unit.media: unit.size or 0 for unit in units if unit.media is not None and unit.kept}


def _committing(state: IntentState) -> IntentState:
    return replace(state, status=Status.COMMITTING, current=None, hold=None, due_at=0, reason=None)


def _ended(state: IntentState, status: Status, reason: str | None) -> IntentState:
    """Terminal: what is still in doubt stays known, because it may hold the lane until its lease end."""
    return replace(
        state, status=status, reason=reason, current=None, doubt=state.live, hold=None, due_at=None, refused=False
    )


def _contradicted(state: IntentState, event: e.UnitAccepted | e.AttemptFailed) -> IntentState:
    beside = _beside(state, event) if isinstance(event, e.UnitAccepted) else state.beside
    return replace(state, contradictions=state.contradictions + 1, late=_remember(state, event), beside=beside)


def _beside(state: IntentState, event: e.UnitAccepted) -> tuple[tuple[int, tuple[e.AcceptedPart, ...]], ...]:
    """The first ones are kept: a row that was shown stays."""
    return (*state.beside, (event.unit, event.parts))[:LATE_FACTS_MAX]


def _was_marked(state: IntentState, event: e.UnitAccepted) -> bool:
    return any(attempt.number == event.attempt and attempt.marks(event.unit) for attempt in state.live)


def _ids(parts: tuple[e.AcceptedPart, ...]) -> tuple[str | None, ...]:
    return tuple(part.id for part in parts)


def _late_key(event: e.UnitAccepted | e.AttemptFailed) -> str:
    if isinstance(event, e.AttemptFailed):
        return f"failed {event.attempt}.{event.unit}"
    return f"accepted {event.attempt}.{event.unit} {','.join(id or '' for id in _ids(event.parts))}"


def _remember(state: IntentState, event: e.UnitAccepted | e.AttemptFailed) -> tuple[str, ...]:
    return (*state.late, _late_key(event))[-LATE_FACTS_MAX:]
