"""The decisions: the events that a step, an outcome or a person leads to. Pure; time and chance are arguments.

What the platform did is a fact and is always accepted here; what we do about it is decided on the state that was read,
and the store refuses it where that state is no longer the newest.
"""

from __future__ import annotations

import math
from typing import Final

from . import events as e
from .errors import NotPossible
from .intent import IntentState, Status
from .limits import BACKOFF_MS, CHECK_BACKOFF_MS, CHECKS_MAX, PROBE_WAIT_MAX_MS, RETRY_AFTER_MAX_MS
from .outcome import Accepted, Cause, FailureClass, Proof, Rejected, Unknown
from .steps import Check, Start, Terms

RETRYABLE: Final = frozenset({FailureClass.TRANSIENT, FailureClass.RATE_LIMIT})
"""Failures that the same request may not meet again."""
HOLDS: Final = frozenset({FailureClass.AUTH, FailureClass.PERMISSION})
"""Rejections that only a change of configuration can mend."""
SUPERSEDED: Final = "superseded"
"""The code of an attempt that the last look ended before anything left."""
CALLBACK_GONE: Final = "callback_gone"
"""The code of an intent that ended because the only function that could send it is no more."""
UNREADABLE: Final = "media_unreadable"
"""The code of an attempt whose file could not be read here and now, which says nothing of the platform."""


def backoff_ms(failures: int, chance: float) -> int:
    """Full jitter below a ceiling that grows with the failures in a row. `chance` is in [0, 1)."""
    ceiling = BACKOFF_MS[min(max(failures, 0), len(BACKOFF_MS) - 1)]
    return max(1, int(ceiling * chance))


def start(
    state: IntentState,
    step: Start,
    terms: Terms,
    *,
    at: int,
    boot_ms: int,
    owner: str,
    tries: tuple[e.UnitTry, ...],
) -> e.AttemptStarted:
    """The claim, appended right before the I/O at the head that `step` was decided on."""
    return e.AttemptStarted(
        at=at,
        by=f"worker:{owner}",
        attempt=state.attempts + 1,
        owner=owner,
        units=tries,
        deadline_ms=terms.deadline_ms,
        margin_ms=terms.margin_ms,
        boot_ms=boot_ms,
        credential=terms.credential,
        why=step.why,
        licence=step.licence,
        marked=step.marked,
    )


def accepted(
    attempt: int, unit: int, kind: e.UnitKind, outcome: Accepted, *, at: int, by: str, took_ms: int | None = None
) -> e.UnitAccepted:
    """The fact that the platform took the unit."""
    parts = tuple(e.AcceptedPart(part.platform_id, part.kind) for part in outcome.parts)
    detailed = any(p.thread or p.reply_to or p.edit_token or p.delete_token or p.url for p in outcome.parts)
    content = None
    if detailed or outcome.raw is not None:
        content = e.AcceptedContent(parts=outcome.parts if detailed else (), raw=outcome.raw)
    return e.UnitAccepted(
        at=at,
        by=by,
        attempt=attempt,
        unit=unit,
        parts=parts or (e.AcceptedPart(outcome.platform_id, kind),),
        sent_at=outcome.sent_at,
        duplicate=outcome.duplicate,
        status=outcome.status,
        request_id=outcome.request_id,
        took_ms=took_ms,
        content=content,
    )


def failed(
    state: IntentState,
    attempt: int,
    unit: int,
    outcome: Rejected,
    *,
    at: int,
    by: str,
    terms: Terms,
    chance: float,
    took_ms: int | None = None,
) -> e.AttemptFailed:
    """The fact that the attempt did not send the unit, and what the core makes of its class.

    `transient` and `rate_limit` are tried again, never before the platform allows it; `auth` and `permission` wait for
    the configuration to change; the rest ends. Where an earlier attempt is still in doubt, the next step is due later
    and nothing ends, because the unit may be visible already.
    """
    free = not outcome.bytes_left or outcome.failure is FailureClass.RATE_LIMIT
    stopped = outcome.code == SUPERSEDED
    retryable = outcome.failure in RETRYABLE or stopped
    spent = not free and state.charged >= state.policy.max_attempts
    doubtful = any(other.number != attempt for other in state.doubt)
    retry_after = None
    if outcome.retry_after_s is not None:
        retry_after = math.ceil(min(max(0.0, outcome.retry_after_s * 1000), RETRY_AFTER_MAX_MS))
    next_at: int | None = None
    hold: e.Hold | None = None
    optional = not state.units[unit].required and not stopped  # tried once, and never delays the rest
    once = optional or state.callback is not None  # a callback serves once, whatever the platform says
    if doubtful or (retryable and not spent and not once):
        wait = 0 if stopped else backoff_ms(state.failures, chance)
        if not outcome.bytes_left:
            wait = min(wait, PROBE_WAIT_MAX_MS)
        if retry_after is not None:
            wait = retry_after + min(wait, retry_after)  # the platform named the wait; spread what comes after it
        next_at = at + wait
    elif outcome.failure in HOLDS and not once:
        hold = "config"
    return e.AttemptFailed(
        at=at,
        by=by,
        attempt=attempt,
        unit=unit,
        plan=state.plan,
        failure=outcome.failure,
        proof=outcome.proof,
        bytes_left=outcome.bytes_left,
        status=outcome.status,
        code=outcome.code,
        request_id=outcome.request_id,
        took_ms=took_ms,
        retry_after_ms=retry_after,
        scope=outcome.scope,
        next_attempt_at=next_at,
        hold=hold,
        config=terms.config if hold == "config" else None,
        content=e.ErrorContent(detail=outcome.detail) if outcome.detail else None,
    )


def superseded(detail: str) -> Rejected:
    """What the last look right before the I/O raises: the attempt is over, and nothing left."""
    return Rejected(FailureClass.CANCELLED, detail, code=SUPERSEDED, bytes_left=False, proof=Proof.NEVER_DISPATCHED)


def unknown(
    state: IntentState,
    attempt: int,
    unit: int,
    outcome: Unknown,
    *,
    at: int,
    by: str,
    chance: float,
    took_ms: int | None = None,
) -> e.OutcomeUnknown:
    """The current attempt ends in doubt. The next step is now where its owner is gone, else after a wait."""
    lost = outcome.cause in (Cause.OWNER_LOST, Cause.CLOSING)
    return e.OutcomeUnknown(
        at=at,
        by=by,
        attempt=attempt,
        unit=unit,
        cause=outcome.cause,
        status=outcome.status,
        request_id=outcome.request_id,
        took_ms=took_ms,
        next_check_at=at if lost else at + backoff_ms(state.failures, chance),
        content=e.ErrorContent(detail=outcome.detail) if outcome.detail else None,
    )


def taken_over(state: IntentState, *, at: int, by: str) -> e.OutcomeUnknown:
    """The owner is gone: whatever it had begun with the first unit without a receipt is in doubt."""
    if state.current is None:
        raise NotPossible(f"intent {state.id} is {state.status.value}: there is no attempt to take over")
    outcome = Unknown(Cause.OWNER_LOST)
    unit = state.next_unit
    return unknown(state, state.current.number, 0 if unit is None else unit, outcome, at=at, by=by, chance=0.0)


def commit(state: IntentState, *, at: int, by: str) -> e.IntentCommitted:
    """The end of an intent that has all its receipts."""
    return e.IntentCommitted(at=at, by=by, platform_ids=state.platform_ids, missing=state.missing)


def end(state: IntentState, reason: e.FailReason, *, at: int, by: str, note: str | None = None) -> e.Event:
    """The end of an intent that will not be sent. Needs that nothing is in doubt, but for a person's discard."""
    if reason != "discarded" and (state.status is not Status.PENDING or state.doubt):
        raise NotPossible(f"intent {state.id} is {state.status.value}: it cannot end as {reason}")
    code = state.code if state.callback is None or reason != "expired" else CALLBACK_GONE
    return e.IntentFailed(at=at, by=by, reason=reason, failure=state.failure, code=code, note=note)


def finish(state: IntentState, *, at: int, by: str) -> e.Event | None:
    """The event that ends an intent right after the fact that settled it; None where none is due."""
    if state.status is Status.COMMITTING:
        if state.receipts:
            return commit(state, at=at, by=by)
        return e.IntentFailed(at=at, by=by, reason="rejected", failure=state.failure, code=state.code)
    if state.status is not Status.PENDING or not state.refused:
        return None
    if state.failure is FailureClass.CANCELLED and not state.receipts:
        return e.IntentCancelled(at=at, by=by, reason=state.code or "cancelled by the channel")
    if state.failure is FailureClass.CANCELLED:
        return end(state, "discarded", at=at, by=by)
    return end(state, "attempts_exhausted" if state.failure in RETRYABLE else "rejected", at=at, by=by)


def cancelled(state: IntentState, reason: str, *, at: int, by: str) -> e.Event:
    """A cancel: only while nothing was sent and nothing is in doubt. After some units it is a discard."""
    if state.status is not Status.PENDING or state.doubt:
        way = {
            Status.SENDING: "an attempt is in flight; wait for its outcome",
            Status.UNKNOWN: "it may have been sent; say what you know with `intents resolve`",
        }.get(state.status, "it is too late")
        raise NotPossible(f"intent {state.id} is {state.status.value}: {way}")
    if state.receipts:
        return end(state, "discarded", at=at, by=by, note=reason)
    return e.IntentCancelled(at=at, by=by, reason=reason)


def resolved(
    state: IntentState, verdict: str, reason: str, *, at: int, by: str, platform_id: str | None = None
) -> e.Event:
    """A person's word on an unknown outcome: `sent`, `not-sent`, or `discard` to leave it as it is for good."""
    if state.status is not Status.UNKNOWN:
        raise NotPossible(f"intent {state.id} is {state.status.value}: only an unknown outcome can be resolved")
    if verdict == "discard":
        return end(state, "discarded", at=at, by=by, note=reason)
    unit = state.next_unit or 0
    attempts = tuple(attempt.number for attempt in state.doubt)
    evidence = {"method": "person"}
    if verdict == "sent":
        parts = (e.AcceptedPart(platform_id, state.units[unit].kind),)
        return e.OutcomeReconciled(
            at=at, by=by, unit=unit, attempts=attempts, verdict="sent", evidence=evidence, parts=parts, reason=reason
        )
    if verdict == "not-sent":
        return e.OutcomeReconciled(
            at=at, by=by, unit=unit, attempts=attempts, verdict="not_sent", evidence=evidence, reason=reason
        )
    raise NotPossible(f"{verdict!r} is no verdict: say sent, not-sent or discard")


def checked(
    state: IntentState,
    step: Check,
    verdict: str,
    *,
    at: int,
    by: str,
    evidence: dict[str, object],
    retryable: bool = True,
    found: e.UnitAccepted | None = None,
) -> e.OutcomeReconciled:
    """What a look-up said. Absence counts only when the step was conclusive; seen earlier it costs no check."""
    attempts = tuple(attempt.number for attempt in state.doubt)
    if found is not None:
        return e.OutcomeReconciled(
            at=at,
            by=by,
            unit=step.unit,
            attempts=attempts,
            verdict="sent",
            evidence=evidence,
            parts=found.parts,
            sent_at=found.sent_at,
            content=found.content,
        )
    if verdict == "not_sent" and step.conclusive:
        return e.OutcomeReconciled(
            at=at, by=by, unit=step.unit, attempts=attempts, verdict="not_sent", evidence=evidence
        )
    lease_end = state.lease_ends_at or at
    early = at < lease_end
    if early:
        next_at: int | None = lease_end
    elif not retryable or state.checks + 1 >= CHECKS_MAX:
        next_at = None
    else:
        next_at = at + CHECK_BACKOFF_MS[min(state.checks, len(CHECK_BACKOFF_MS) - 1)]
    return e.OutcomeReconciled(
        at=at,
        by=by,
        unit=step.unit,
        attempts=attempts,
        verdict="unresolved",
        evidence=evidence,
        counted=not early,
        next_check_at=next_at,
    )


def parked(state: IntentState, *, at: int, by: str) -> e.OutcomeReconciled:
    """Held as unresolved: the lane goes on; a later look-up or a person may still settle it."""
    return e.OutcomeReconciled(
        at=at,
        by=by,
        unit=state.next_unit or 0,
        attempts=tuple(attempt.number for attempt in state.doubt),
        verdict="unresolved",
        evidence={"method": "none"},
        counted=False,
        next_check_at=state.due_at,
        hold="unresolved",
    )
