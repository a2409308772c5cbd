"""The ledger of the model: intents that the product's own `evolve` and decisions move, each kept once.

A search state names an intent by a number, so that two histories that lead to the same intent meet, and every step of
the product is computed once for each intent. An intent is stored relative to now and without what no decision reads:
content, counters for people, times that have gone by for everyone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from msgledger.ledger import decide, fold
from msgledger.ledger import events as e
from msgledger.ledger.errors import NotPossible
from msgledger.ledger.intent import Attempt, Got, IntentState, Status
from msgledger.ledger.outcome import Accepted, Cause, FailureClass, NotDispatched, Rejected, Unknown
from msgledger.ledger.steps import Check, Start, Step, next_step, same_request
from msgspec.structs import replace

from .world import TICK, World

NOW = 1_000_000 * TICK
"""The present, in every state: when time passes, everything else moves back."""
NEVER = 10 * NOW
DEAD = "+"
"""Stands behind the name of an owner that has crashed."""
PLATFORM_SAYS = {
    "rejected": lambda: Rejected(FailureClass.TRANSIENT),
    "refused": lambda: Rejected(FailureClass.INVALID_PAYLOAD),
    "unreachable": NotDispatched,
    "superseded": lambda: decide.superseded("the last look"),
    "conflict": lambda: Rejected(FailureClass.CONFLICT),
}

Answer = TypeVar("Answer")


def once(method: Callable[..., Answer]) -> Callable[..., Answer]:
    """Remember what the product says to the same question about the same intent."""
    name = method.__name__

    @wraps(method)
    def asked(book: Book, *question: Any) -> Answer:
        key = (name, *question)
        try:
            return book.answers[key]
        except KeyError:
            answer = book.answers[key] = method(book, *question)
            return answer

    return asked


class Book:
    """Every intent that a search has met, and what the product makes of it. `w` is the worker who asks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.terms = tuple(world.terms(w) for w in range(2))
        self.wall = tuple(NOW + ahead * TICK for ahead in world.ahead)
        self.earliest = min(self.wall)
        settled = world.deadline + self.terms[0].margin_ms // TICK + 1
        self.horizon = NOW - TICK * (max(settled, world.window or 0) + 2 * max(world.ahead) + 1)
        self.alike = len({(world.ahead[w], world.credentials[w], world.bytes_[w]) for w in range(2)}) == 1
        """The two workers differ in nothing but their names."""
        self.states: list[IntentState] = []
        self.views: list[IntentState] = []
        self.numbers: dict[tuple[object, ...], int] = {}
        self.answers: dict[tuple[object, ...], Any] = {}

    # -- what the store does

    def recorded(self, place: int) -> int:
        """A new intent, `place` being its position in the lane."""
        world = self.world
        policy = e.Policy(
            max_attempts=world.max_attempts,
            expires_at=NEVER if world.expires is None else NOW + world.expires * TICK,
            on_unknown="at_least_once" if world.at_least_once else "hold",
        )
        event = e.IntentRecorded(
            at=NOW,
            by="gateway:model",
            key=str(place),
            content_mac="",
            channel="model",
            account="",
            lane="lane",
            place="place",
            relation="followup",
            policy=policy,
            units=tuple(e.PlannedUnit(required=required) for required in world.required),
            atomicity=world.atomicity,
        )
        state = fold.evolve(None, f"intent-{place}", event, place, NOW)
        assert isinstance(state, IntentState)
        return self.number(state)

    def append(self, state: IntentState, event: e.Event | None, w: int, *, at_head: bool = True) -> IntentState:
        """The store's own rule: away from the head what is known is dropped, and the stamp never goes back."""
        if event is None or (not at_head and fold.known(state, event)):
            return state
        after = fold.evolve(state, state.id, event, state.position, max(self.wall[w], state.updated_at))
        assert isinstance(after, IntentState)
        return after

    def with_end(self, state: IntentState, w: int, fresh: bool) -> int:
        """The end goes into the commit of the fact that settled it, but only at the head that the worker knows."""
        if fresh and not state.terminal:
            state = self.append(state, decide.finish(state, at=self.wall[w], by=f"worker:{w}"), w)
        return self.number(state)

    @once
    def holds_lane(self, n: int) -> int | None:
        return self.states[n].holds_lane()

    # -- what a worker decides

    def lease_over(self, state: IntentState, w: int) -> bool:
        """On durations: whoever wrote the claim, `at` was so long ago. The mistake asks the reader's wall clock."""
        live = state.doubt if state.current is None else (*state.doubt, state.current)
        if not self.world.habits.takeover_by_duration:
            return all(self.wall[w] >= attempt.lease_ends_at for attempt in live)
        ahead = self.world.ahead
        return all(attempt.lease_ends_at - ahead[int(attempt.owner[0])] * TICK <= NOW for attempt in live)

    @once
    def step(self, n: int, w: int) -> Step:
        state, terms = self.states[n], self.terms[w]
        dead = state.current is not None and self.world.one_host and state.current.owner.endswith(DEAD)
        if not self.world.habits.death_is_proven:
            dead = True
        facts = {"lease_over": self.lease_over(state, w), "owner_dead": dead}
        step = next_step(state, terms, self.wall[w], **facts)
        if isinstance(step, Start) and step.licence == "window" and not same_request(state, self.tries(state, w)):
            step = next_step(state, replace(terms, window_ms=None), self.wall[w], **facts)
        return step

    def tries(self, state: IntentState, w: int, *, marked: bool = False) -> tuple[e.UnitTry, ...]:
        """A marked copy has a key of its own: the platform must not take it for the message that it repeats."""
        left = (unit for unit in range(len(state.units)) if unit not in state.receipts and unit not in state.gaps)
        copy = f"+{state.attempts + 1}" if marked else ""
        return tuple(e.UnitTry(unit, f"key-{unit}{copy}", self.world.bytes_[w]) for unit in left)

    @once
    def started(self, n: int, read: int, w: int, step: Start) -> int:
        """`read`: the intent that the claim was decided on, which the head check makes the newest."""
        state = self.states[read]
        claim = decide.start(
            state,
            step,
            self.terms[w],
            at=self.wall[w],
            boot_ms=0,
            owner=str(w),
            tries=self.tries(state, w, marked=step.marked),
        )
        return self.number(self.append(self.states[n], claim, w))

    @once
    def ended(self, n: int, w: int, reason: e.FailReason) -> int:
        state = self.states[n]
        return self.number(self.append(state, decide.end(state, reason, at=self.wall[w], by=f"worker:{w}"), w))

    @once
    def finished(self, n: int, w: int) -> int:
        return self.with_end(self.states[n], w, True)

    @once
    def taken_over(self, n: int, w: int) -> int:
        state = self.states[n]
        return self.number(self.append(state, decide.taken_over(state, at=self.wall[w], by=f"worker:{w}"), w))

    @once
    def looked_up(self, n: int, w: int, step: Check, found: bool | None) -> int:
        """`found` is None where the look-up could not tell."""
        state, at, by = self.states[n], self.wall[w], f"worker:{w}"
        receipt = decide.accepted(0, step.unit, "text", Accepted(f"id-{step.unit}"), at=at, by=by) if found else None
        verdict = {True: "sent", False: "not_sent", None: "unresolved"}[found]
        event = decide.checked(state, step, verdict, at=at, by=by, evidence={}, found=receipt)
        return self.with_end(self.append(state, event, w), w, True)

    @once
    def parked(self, n: int, w: int) -> int:
        state = self.states[n]
        return self.number(self.append(state, decide.parked(state, at=self.wall[w], by=f"worker:{w}"), w))

    # -- what a worker has learned. `view` is the intent as it last read it, -1 where that is the newest

    @once
    def accepted(self, n: int, view: int, w: int, attempt: int, unit: int) -> int:
        state = self.states[n]
        if not self.world.habits.facts_kept and view >= 0:
            return n
        fact = decide.accepted(attempt, unit, "text", Accepted(f"id-{unit}"), at=self.wall[w], by=f"worker:{w}")
        return self.with_end(self.append(state, fact, w, at_head=view < 0), w, view < 0)

    @once
    def failed(self, n: int, view: int, w: int, attempt: int, unit: int, answer: str) -> int:
        state = self.states[n]
        fact = decide.failed(
            state if view < 0 else self.views[view],
            attempt,
            unit,
            PLATFORM_SAYS[answer](),
            at=self.wall[w],
            by=f"worker:{w}",
            terms=self.terms[w],
            chance=0.0,
        )
        return self.with_end(self.append(state, fact, w, at_head=view < 0), w, view < 0)

    @once
    def unknown(self, n: int, w: int, attempt: int, unit: int) -> int:
        """A decision: without effect where the attempt is not the current one any more."""
        state = self.states[n]
        if self.world.habits.unknown_checked and not self.runs(n, w, attempt):
            return n
        outcome = Unknown(Cause.TIMEOUT)
        event = decide.unknown(state, attempt, unit, outcome, at=self.wall[w], by=f"worker:{w}", chance=0.0)
        return self.number(self.append(state, event, w))

    @once
    def runs(self, n: int, w: int, attempt: int) -> bool:
        """Whether the attempt is the intent's current one and the worker's own."""
        current = self.states[n].current
        return current is not None and (current.number, current.owner) == (attempt, str(w))

    # -- people

    @once
    def cancelled(self, n: int) -> int | None:
        state = self.states[n]
        try:
            event = decide.cancelled(state, "changed my mind", at=NOW, by="operator:p")
        except NotPossible:
            return None
        return self.number(self.append(state, event, 0))

    @once
    def resolved(self, n: int, verdict: str) -> int:
        state = self.states[n]
        event = decide.resolved(
            state, verdict, "I looked", at=NOW, by="operator:p", platform_id=f"id-{state.next_unit}"
        )
        return self.with_end(self.append(state, event, 0), 0, True)

    # -- time and death

    @once
    def later(self, n: int) -> int:
        """One tick later: everything that was, and everything that is to come, is one tick nearer."""
        state = self.states[n]

        def back(at: int | None) -> int | None:
            return at if at is None or at == NEVER else at - TICK

        return self.number(
            replace(
                state,
                updated_at=state.updated_at - TICK,
                due_at=back(state.due_at),
                policy=replace(state.policy, expires_at=back(state.policy.expires_at)),
                current=state.current and replace(state.current, at=state.current.at - TICK),
                doubt=tuple(replace(attempt, at=attempt.at - TICK) for attempt in state.doubt),
            )
        )

    @once
    def bereft(self, n: int, w: int) -> int:
        """The intent after the worker's crash: an attempt of its has a dead owner."""
        current = self.states[n].current
        if current is None or current.owner != str(w):
            return n
        return self.number(replace(self.states[n], current=replace(current, owner=f"{0 if self.alike else w}{DEAD}")))

    @once
    def swapped(self, n: int) -> int:
        """The intent with the two workers' names exchanged."""
        current = self.states[n].current
        if current is None or current.owner.endswith(DEAD):
            return n
        other = "1" if current.owner == "0" else "0"
        return self.number(replace(self.states[n], current=replace(current, owner=other)))

    @once
    def view(self, n: int) -> int:
        """What a worker that is behind still decides with: the budget, and which attempts it knew to be in doubt."""
        state = self.states[n]
        doubt = tuple(Attempt(a.number, "", 0, 0, 0, 0, "", (), False, "none", a.unit) for a in state.doubt)
        view = replace(self.blank(state), receipts={}, charged=state.charged, doubt=doubt, status=Status.SENDING)
        key = ("view", state.position, state.charged, doubt, state.gaps)
        if key not in self.numbers:
            self.numbers[key] = len(self.views)
            self.views.append(view)
        return self.numbers[key]

    # -- one number for each intent

    def number(self, state: IntentState) -> int:
        state = self.canonical(state)
        key = (
            state.position,
            state.status,
            state.hold,
            state.due_at,
            state.policy.expires_at,
            state.updated_at,
            state.refused,
            state.current,
            state.doubt,
            state.attempts,
            state.charged,
            state.checks,
            state.reopened,
            tuple(sorted(state.receipts.items())),
            state.gaps,
            state.failure,
            state.reason,
            state.ended_mask,
        )
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.states)
            self.states.append(state)
        return number

    def canonical(self, state: IntentState) -> IntentState:
        """The same intent without what no later step can tell apart."""
        bare = self.blank(state)
        if state.terminal:
            doubt = self.doubts(state) if state.reason == "discarded" else ()
            if all(attempt.lease_ends_at <= self.earliest for attempt in doubt):
                doubt = ()
            return replace(bare, reason=state.reason, doubt=doubt)
        due = state.due_at
        if due is not None:
            due = max(due - due % TICK, self.earliest)  # a wait shorter than a tick may be over at once
        expires = state.policy.expires_at
        return replace(
            bare,
            hold=state.hold,
            due_at=due if state.status in (Status.PENDING, Status.UNKNOWN) else None,
            policy=replace(state.policy, expires_at=max(expires, self.earliest - TICK)),
            updated_at=state.updated_at if state.updated_at > self.earliest else 0,
            refused=state.refused,
            current=state.current and self.with_time(state.current),
            doubt=self.doubts(state),
            attempts=state.attempts,
            charged=state.charged,
            checks=state.checks if state.status is Status.UNKNOWN else 0,
            reopened=state.reopened,
            failure=state.failure if state.refused else None,
            ended_mask=state.ended_mask,
        )

    def blank(self, state: IntentState) -> IntentState:
        """Only what stays with an intent whatever happens."""
        receipts = {
            unit: Got(got.parts, () if state.terminal else tuple(sorted(set(got.attempts))))
            for unit, got in state.receipts.items()
        }
        return IntentState(
            id=state.id,
            position=state.position,
            head=0,
            recorded_at=0,
            updated_at=0,
            key=state.key,
            content_mac="",
            action=state.action,
            of=None,
            channel=state.channel,
            account="",
            lane=state.lane,
            place=state.place,
            relation=state.relation,
            origin=state.origin,
            session=None,
            inbound=None,
            durability=state.durability,
            policy=replace(state.policy, expires_at=NEVER),
            units=state.units,
            atomicity=state.atomicity,
            at=0,
            status=state.status,
            receipts=receipts,
            gaps=state.gaps,
        )

    def doubts(self, state: IntentState) -> tuple[Attempt, ...]:
        return tuple(
            self.with_time(replace(attempt, owner="0" if self.alike else attempt.owner[0])) for attempt in state.doubt
        )

    def with_time(self, attempt: Attempt) -> Attempt:
        return replace(attempt, at=max(attempt.at, self.horizon), boot_ms=0)
