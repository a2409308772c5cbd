"""What may happen to an intent next: the whole policy of sending and recovery as one pure function.

The dispatcher acts on `next_step`, `explain` prints it, and the model in the tests searches it. Nothing here guesses an
outcome: an unknown one is reopened only by proof of not sent, by an open deduplication window, by an explicit
at-least-once policy, or by a person.
"""

from __future__ import annotations

import msgspec

from . import events as e
from .intent import IntentState, Status
from .limits import CHECKS_MAX, CLOCK_BOUND_MS, DEADLINE_MS, SETTLE_MS, UNRESOLVED_HOLDS_AFTER_MS


class Terms(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What decisions know of a channel: durations in milliseconds, and fingerprints."""

    deadline_ms: int = DEADLINE_MS
    settle_ms: int = SETTLE_MS
    clock_bound_ms: int = CLOCK_BOUND_MS
    """0 where all workers share one host."""
    window_ms: int | None = None
    """The platform's deduplication window, where there is evidence for it."""
    reconciles: bool = False
    proves_absence: bool = False
    credential: str = ""
    config: str = ""

    @property
    def margin_ms(self) -> int:
        return self.settle_ms + self.clock_bound_ms


class Start(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Claim it and send the units without a receipt."""

    why: e.Why
    licence: e.Licence = "none"
    marked: bool = False


class Finish(msgspec.Struct, frozen=True, gc=False, tag=True):
    """What settles it is in the ledger already; only the event that ends it is missing."""


class End(msgspec.Struct, frozen=True, gc=False, tag=True):
    """It ends as failed, and why."""

    reason: e.FailReason


class TakeOver(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The attempt's owner is gone: its outcome is unknown."""


class Check(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Look the unit up at the platform. `conclusive`: not found may count as not sent."""

    unit: int
    conclusive: bool


class Park(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Nothing more can be done by itself: hold it for a person, and let the lane go on."""


class Release(msgspec.Struct, frozen=True, gc=False, tag=True):
    """What it was held for has changed."""


class Wait(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Nothing to do now. `until` is UTC milliseconds, None where only something from outside can move it."""

    until: int | None
    what: str


Step = Start | Finish | End | TakeOver | Check | Park | Release | Wait


def next_step(
    state: IntentState,
    terms: Terms,
    now: int,
    *,
    lease_over: bool,
    owner_dead: bool = False,
    callback_gone: bool = False,
) -> Step:
    """What to do with the intent at `now` (UTC ms).

    `lease_over`: the lease of every attempt in flight or in doubt has ended, on a clock that no correction shortens.
    `owner_dead`: the attempt's owner is provably dead, which ends its claim but not its request. `callback_gone`: so
    is the process that had the only function that may send it.
    """
    match state.status:
        case Status.PENDING:
            if state.callback is not None and not state.refused and (callback_gone or state.attempts > 0):
                return End("expired")  # a callback serves once, and nothing else may be sent in its place
            return _pending(state, terms, now)
        case Status.SENDING:
            if owner_dead or lease_over:
                return TakeOver()
            return Wait(state.lease_ends_at, "an attempt is in flight")
        case Status.COMMITTING:
            return Finish()
        case Status.UNKNOWN:
            return _unknown(state, terms, now, lease_over)
        case _:
            return Wait(None, f"it has ended as {state.status.value}")


def _pending(state: IntentState, terms: Terms, now: int) -> Step:
    if state.refused:
        return Finish()
    if now > state.policy.expires_at:
        return End("expired")
    if state.hold == "config":
        if state.config != terms.config:
            return Release()
        return Wait(state.policy.expires_at, "it waits for the channel's configuration to change")
    if state.hold == "channel":
        return Release()
    if state.charged >= state.policy.max_attempts:
        return End("attempts_exhausted")
    if state.due_at is not None and now < state.due_at:
        return Wait(min(state.due_at, state.policy.expires_at + 1), "it waits for its next attempt")
    if state.reopened:
        return Start("operator", "operator")
    return Start("first" if state.attempts == 0 else "retry")


def _unknown(state: IntentState, terms: Terms, now: int, lease_over: bool) -> Step:
    lease_end = state.lease_ends_at or now
    unit = state.next_unit
    due = state.due_at if state.due_at is not None else now
    looks_left = state.checks < CHECKS_MAX and state.due_at is not None
    can_check = terms.reconciles and unit is not None and bool(state.doubt) and looks_left
    if state.hold == "channel":
        return Release()
    if state.hold is not None:
        if not can_check:
            return Wait(None, "it is held until a person decides")
        if now < due:
            return Wait(due, "it is held; it will be looked up again")
        return Check(unit or 0, conclusive=False)
    may_send = state.charged < state.policy.max_attempts and now <= state.policy.expires_at and state.callback is None
    if may_send and (state.looked or not can_check) and window_open(state, terms, now):
        again = now if state.looked else due  # a look-up's next turn is no reason to wait with what is safe now
        return Start("recovery", "window") if now >= again else Wait(again, "it waits to be sent again by its key")
    looked = not can_check or (lease_over and state.checks > 0)
    if may_send and looked and state.policy.on_unknown == "at_least_once":
        return Start("recovery", "at_least_once", marked=True) if now >= due else Wait(due, "it waits to be copied")
    if can_check and now >= due:
        return Check(unit or 0, conclusive=lease_over and terms.proves_absence and under_one_key(state))
    if lease_over and (not terms.reconciles or now >= lease_end + UNRESOLVED_HOLDS_AFTER_MS):
        return Park()
    until = lease_end if not terms.reconciles else lease_end + UNRESOLVED_HOLDS_AFTER_MS
    return Wait(min(due, until) if can_check else until, "its outcome is unknown")


def window_open(state: IntentState, terms: Terms, now: int) -> bool:
    """Whether the same request with the same key would still be recognised, however late it arrives.

    Counted from the start of the first attempt that may have arrived. Another credential or a clock that runs behind
    the ledger counts as closed.
    """
    if terms.window_ms is None or not state.doubt:
        return False
    first = state.doubt[0]
    if first.credential != terms.credential or now < state.updated_at:
        return False
    if any(attempt.marked for attempt in state.doubt):
        return False
    return first.at + terms.window_ms >= now + terms.deadline_ms + terms.settle_ms + terms.clock_bound_ms


def under_one_key(state: IntentState) -> bool:
    """Whether one look-up speaks of every attempt in doubt: a copy has a key of its own."""
    keys = {one.key for attempt in state.doubt for one in attempt.tries if one.unit == attempt.unit}
    return len(keys) <= 1


def same_request(state: IntentState, tries: tuple[e.UnitTry, ...]) -> bool:
    """Whether what would go out now is, byte for byte and key for key, what went out in every attempt in doubt."""
    now = {one.unit: one for one in tries}
    return all(now.get(one.unit) == one for attempt in state.doubt for one in attempt.tries if one.unit == attempt.unit)
