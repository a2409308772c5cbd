"""Every rule of docs/behaviour/protocol.md switched off, and every known mistake switched on: what must be caught.

A mistake in the product is a patch of its own functions, one of the surroundings is a habit (`world.py`) or a world in
which a channel says what is not true. Each names the guarantee that it breaks; the search must find that one first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from msgledger.ledger import decide, life, steps
from msgledger.ledger import events as e
from msgledger.ledger.errors import NotPossible
from msgledger.ledger.intent import Attempt, IntentState, Status
from msgledger.ledger.outcome import FailureClass
from msgledger.ledger.steps import Check, End, Park, Start, Step, Terms, Wait
from msgspec.structs import replace as but

from . import book
from .world import Habits, World
from .worlds import BATCH, ONE, SKEWED

Patch = tuple[Any, str, Any]


@dataclass(frozen=True)
class Mutation:
    name: str
    rules: str
    breaks: str
    """How the broken guarantee begins, as the search words it."""
    world: World
    patches: tuple[Patch, ...] = ()
    habits: dict[str, bool] = field(default_factory=dict)

    @property
    def mistaken(self) -> World:
        return replace(self.world, habits=Habits(**self.habits))


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, value in mutation.patches:
            stack.enter_context(patch.object(owner, name, value))
        yield


# The product's own functions, as they are, for the patches to build on.

_accepted, _failed = life._accepted, life._failed
_unknown_outcome, _reconciled = life._unknown, life._reconciled
_pending, _unknown, _next_step = steps._pending, steps._unknown, steps.next_step
_holds_lane, _window_open, _cancelled = IntentState.holds_lane, steps.window_open, decide.cancelled


def absence_counts_at_once(state: IntentState, terms: Terms, now: int, lease_over: bool) -> Step:
    step = _unknown(state, terms, now, lease_over)
    return but(step, conclusive=terms.proves_absence) if isinstance(step, Check) and state.hold is None else step


def failure_moves_the_newest(state: IntentState, event: e.AttemptFailed) -> IntentState:
    if state.current is not None:
        event = but(event, attempt=state.current.number)
    return _failed(state, event)


def unknown_moves_the_newest(state: IntentState, event: e.OutcomeUnknown) -> IntentState:
    if state.current is not None:
        event = but(event, attempt=state.current.number)
    return _unknown_outcome(state, event)


def pending_with_doubt(state: IntentState, event: e.AttemptFailed) -> IntentState:
    own = state.current is not None and state.current.number == event.attempt
    after = _failed(state, event)
    if own and after.status is Status.UNKNOWN:
        return but(after, status=Status.PENDING)
    return after


def conflict_is_a_rejection(state: IntentState, event: e.AttemptFailed) -> IntentState:
    if event.failure is FailureClass.CONFLICT:
        state = but(state, doubt=())
        event = but(event, next_attempt_at=None)
    return _failed(state, event)


def one_part_is_all(state: IntentState, event: e.OutcomeReconciled) -> IntentState:
    after = _reconciled(state, event)
    return life._committing(after) if event.verdict == "sent" else after


def late_receipt_goes_on_sending(state: IntentState, event: e.UnitAccepted) -> IntentState:
    after = _accepted(state, event)
    if state.status is Status.UNKNOWN and after.owes and state.doubt:
        return but(after, status=Status.SENDING, current=state.doubt[0], doubt=(), hold=None)
    return after


def late_receipt_reopens(state: IntentState, event: e.UnitAccepted) -> IntentState:
    if state.status is Status.FAILED:
        state = but(state, status=Status.UNKNOWN, reason=None)
    return _accepted(state, event)


def cancel_in_flight(state: IntentState, reason: str, *, at: int, by: str) -> e.Event:
    if state.status in (Status.SENDING, Status.UNKNOWN):
        return e.IntentCancelled(at=at, by=by, reason=reason)
    return _cancelled(state, reason, at=at, by=by)


def cancel_after_a_part(state: IntentState, reason: str, *, at: int, by: str) -> e.Event:
    if state.status is not Status.PENDING:
        raise NotPossible("not pending")
    return e.IntentCancelled(at=at, by=by, reason=reason)


def end_anything(state: IntentState, reason: e.FailReason, *, at: int, by: str, note: str | None = None) -> e.Event:
    return e.IntentFailed(at=at, by=by, reason=reason, note=note)


def sending_expires(state: IntentState, terms: Terms, now: int, *, lease_over: bool, owner_dead: bool = False) -> Step:
    if state.status is Status.SENDING and now > state.policy.expires_at:
        return End("expired")
    return _next_step(state, terms, now, lease_over=lease_over, owner_dead=owner_dead)


def unknown_expires(state: IntentState, terms: Terms, now: int, lease_over: bool) -> Step:
    return End("expired") if now > state.policy.expires_at else _unknown(state, terms, now, lease_over)


def window_from_the_last(state: IntentState, terms: Terms, now: int) -> bool:
    return _window_open(but(state, doubt=state.doubt[-1:]), terms, now)


def window_at_the_claim(state: IntentState, terms: Terms, now: int) -> bool:
    return _window_open(state, but(terms, deadline_ms=0, settle_ms=0, clock_bound_ms=0), now)


def window_of_any_credential(state: IntentState, terms: Terms, now: int) -> bool:
    return bool(state.doubt) and _window_open(state, but(terms, credential=state.doubt[0].credential), now)


def unknown_frees_its_lane(state: IntentState) -> int | None:
    return None if state.status is Status.UNKNOWN else _holds_lane(state)


def held_frees_its_lane(state: IntentState) -> int | None:
    return None if state.hold is not None else _holds_lane(state)


def discarded_frees_its_lane(state: IntentState) -> int | None:
    return None if state.terminal else _holds_lane(state)


def holds_at_once(state: IntentState, terms: Terms, now: int, lease_over: bool) -> Step:
    return Park() if state.hold is None else _unknown(state, terms, now, lease_over)


def never_exhausted(state: IntentState, terms: Terms, now: int) -> Step:
    step = _pending(state, terms, now)
    return Wait(None, "it has no attempt left") if isinstance(step, End) else step


def sent_again(state: IntentState, terms: Terms, now: int, lease_over: bool) -> Step:
    return Start("recovery")


def part_ends_the_rest(state: IntentState, event: e.AttemptFailed) -> IntentState:
    in_doubt = any(attempt.number == event.attempt for attempt in state.doubt)
    after = _failed(state, event)
    return but(after, gaps=state.gaps, refused=True) if in_doubt and after.gaps != state.gaps else after


def always(answer: Any) -> Callable[..., Any]:
    return lambda *_args, **_more: answer


LOOK = World(**ONE, reconciles=True)
LOOK_LONG = World(**ONE, reconciles=True, max_attempts=3)
LOOK_ALIVE = World(**ONE, reconciles=True, crashes=0)
WINDOW = World(**ONE, window=5, max_attempts=3, crashes=0)
PERSON = World(verdicts=1, attempts=(1, 1), crashes=0)

MUTATIONS = (
    # The rules, one by one.
    Mutation("margin 0", "R1", "G4", LOOK, ((Terms, "margin_ms", property(always(0))),)),
    Mutation("absence counts before the lease end", "R1", "G4", LOOK_ALIVE,
             ((steps, "_unknown", absence_counts_at_once),)),
    Mutation("absence under one key counts for all", "R1", "G4",
             World(**ONE, at_least_once=True, reconciles=True, max_attempts=3),
             ((steps, "under_one_key", always(True)),)),
    Mutation("an outcome of a superseded attempt moves its successor", "R2", "G5", LOOK,
             ((life, "_unknown", unknown_moves_the_newest),), {"unknown_checked": False}),
    Mutation("pending with doubt", "R2 R4", "G4", World(**ONE, at_least_once=True, max_attempts=3),
             ((life, "_failed", pending_with_doubt),)),
    Mutation("a verdict about one part commits all", "R3", "G14", World(**BATCH, reconciles=True),
             ((life, "_reconciled", one_part_is_all),)),
    Mutation("a late receipt leads to sending", "R3", "G6",
             World(required=(True, True), attempts=(1, 1), crashes=0),
             ((life, "_accepted", late_receipt_goes_on_sending),)),
    Mutation("an unknown outcome expires", "R4", "G7", World(**ONE, expires=1, reconciles=True),
             ((steps, "_unknown", unknown_expires), (decide, "end", end_anything))),
    Mutation("the window of another credential", "R5", "G4", World(**ONE, window=5, credentials=("a", "b")),
             ((steps, "window_open", window_of_any_credential),)),
    Mutation("other bytes under the same key", "R5", "G4", World(**ONE, window=5, bytes_=("a", "b")),
             ((book, "same_request", always(True)),)),
    Mutation("a discarded message frees its lane at once", "R6", "G6", PERSON,
             ((IntentState, "holds_lane", discarded_frees_its_lane),)),
    Mutation("the lane is tested outside the claim", "R7", "G6", World(verdicts=1, crashes=0, attempts=(2, 1)),
             habits={"lane_in_claim": False}),
    Mutation("spent attempts do not end it", "R8", "LIVE", LOOK, ((steps, "_pending", never_exhausted),)),
    Mutation("no last look at the head", "R9", "G3", WINDOW, habits={"last_look_at_head": False}),
    Mutation("takeover by a wall clock that is ahead", "R10", "G5",
             World(**ONE, one_host=False, ahead=(0, 5), attempts=(1,)), habits={"takeover_by_duration": False}),
    Mutation("the deadline's clock stops while the host sleeps", "R10", "G5",
             World(**ONE, one_host=False, reconciles=True, attempts=(2,)), habits={"deadline_counts_sleep": False}),
    # The known mistakes that the protocol names.
    Mutation("blind redelivery", "R4", "G4", World(**ONE), ((steps, "_unknown", sent_again),)),
    Mutation("I/O before the attempt is durable", "", "G1", World(**ONE), habits={"durable_first": False}),
    Mutation("a claim without head check", "", "G5", World(**ONE), habits={"head_checked": False}),
    Mutation("a superseded attempt's failure applied to its successor", "R2", "G4", LOOK_LONG,
             ((life, "_failed", failure_moves_the_newest),)),
    Mutation("lease shorter than the deadline", "R1", "G5", World(**ONE),
             ((Attempt, "lease_ends_at", property(lambda attempt: attempt.at)),)),
    Mutation("margin below the clock bound", "R1", "G6", World(**SKEWED, verdicts=1, attempts=(1, 1), crashes=0),
             ((Terms, "margin_ms", property(lambda terms: terms.settle_ms)),)),
    Mutation("no deadline check before I/O", "R9", "G4", LOOK, habits={"last_look_at_deadline": False}),
    Mutation("a live owner judged dead", "R10", "G5", World(**ONE), habits={"death_is_proven": False}),
    Mutation("reconcile right after takeover or timeout", "R1", "G4", LOOK,
             ((steps, "_unknown", absence_counts_at_once),)),
    Mutation("look-up lag ignored", "R1", "G4", World(**ONE, reconciles=True, lag=2, declared_settle=1)),
    Mutation("the window counted from the last attempt", "R5", "G4", WINDOW,
             ((steps, "window_open", window_from_the_last),)),
    Mutation("the window tested only at the claim", "R5", "G4", WINDOW,
             ((steps, "window_open", window_at_the_claim),)),
    Mutation("cancel while sending", "R4", "G7", World(**ONE, cancels=1),
             ((decide, "cancelled", cancel_in_flight),)),
    Mutation("cancel of a half-sent batch", "R4", "G7", World(**BATCH, cancels=1),
             ((decide, "cancelled", cancel_after_a_part),)),
    Mutation("a late receipt applied to a failed intent", "", "G5", World(**ONE, verdicts=1),
             ((life, "_accepted", late_receipt_reopens),)),
    Mutation("a late receipt refused by the fence", "R2", "G5", World(**ONE), habits={"facts_kept": False}),
    Mutation("a lane freed by an unknown intent", "R6", "G6", World(attempts=(1, 1)),
             ((IntentState, "holds_lane", unknown_frees_its_lane),)),
    Mutation("a lane freed by a held one whose request may still land", "R6", "G6", World(attempts=(1, 1)),
             ((IntentState, "holds_lane", held_frees_its_lane), (steps, "_unknown", holds_at_once))),
    Mutation("a 5xx taken as proof of not sent", "", "G4", World(**ONE, max_attempts=3),
             habits={"silence_is_unknown": False}),
    Mutation("expiry while sending", "R4", "G7", World(**ONE, expires=0),
             ((book, "next_step", sending_expires), (decide, "end", end_anything))),
    Mutation("a graceful stop that releases an in-flight request as unsent", "", "G4", World(**ONE, stops=1),
             habits={"stop_waits": False}),
    Mutation("a copy without its marker", "R4", "G4", World(**ONE, at_least_once=True),
             habits={"copies_marked": False}),
    Mutation("a 409 on our own key read as rejection", "", "G7", World(**ONE, window=5, conflicts=True),
             ((life, "_failed", conflict_is_a_rejection),), {"conflicts_understood": False}),
    # What this search has found in the product itself.
    Mutation("a late failure of an optional part ends the rest", "R2", "G7", World(messages=1, required=(False, True)),
             ((life, "_failed", part_ends_the_rest),)),
)  # fmt: skip

SAFE = (
    # One of two rules that keep the same thing, and it holds without the other.
    Mutation("held at once, with its lane kept to the lease end", "R6", "", World(attempts=(1, 1)),
             ((steps, "_unknown", holds_at_once),)),
)  # fmt: skip
