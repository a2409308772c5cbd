"""One intent lived through the product's own decisions: for tests that look at what an event makes of it."""

from __future__ import annotations

from typing import Any

from msgledger.ledger import decide, fold
from msgledger.ledger import events as e
from msgledger.ledger.intent import IntentState
from msgledger.ledger.outcome import Accepted, Cause, FailureClass, Rejected, Unknown
from msgledger.ledger.steps import Check, Start, Step, Terms, next_step

T0 = 1_800_000_000_000
"""When every life begins, UTC milliseconds."""
HOUR = 3_600_000
TERMS = Terms(deadline_ms=30_000, settle_ms=15_000, clock_bound_ms=5_000, credential="c1", config="f1")
LEASE = 50_000
"""Deadline and margin of `TERMS`."""
STREAM = "0192-intent"


def recorded(
    *required: bool,
    atomicity: Any = "all_or_retry_remaining",
    max_attempts: int = 6,
    max_age: int = 6 * HOUR,
    on_unknown: Any = "hold",
    **more: Any,
) -> e.IntentRecorded:
    """The first event of an intent with a unit for each flag."""
    policy = e.Policy(max_attempts=max_attempts, expires_at=T0 + max_age, on_unknown=on_unknown)
    fields: dict[str, Any] = {
        "at": T0,
        "by": "gateway:g",
        "key": "key",
        "content_mac": "mac",
        "channel": "qa",
        "account": "bot",
        "lane": "lane",
        "place": "place",
        "relation": "followup",
        "policy": policy,
        "units": tuple(e.PlannedUnit(required=flag) for flag in required or (True,)),
        "atomicity": atomicity,
    }
    return e.IntentRecorded(**{**fields, **more})


def tries(*units: int, digest: str = "sha", key: str = "key") -> tuple[e.UnitTry, ...]:
    return tuple(e.UnitTry(unit, f"{key}-{unit}", digest) for unit in units)


class Life:
    """An intent and the clock it lives by. Each step appends what the product decides and returns the new state."""

    def __init__(self, *required: bool, terms: Terms = TERMS, **record: Any) -> None:
        self.now = T0
        self.terms = terms
        self.events: list[e.Event] = []
        self.state: IntentState
        self.append(recorded(*required, **record))

    def append(self, event: e.Event | None) -> IntentState:
        assert event is not None
        state = fold.evolve(None if not self.events else self.state, STREAM, event, 7, self.now)
        assert isinstance(state, IntentState)
        self.events.append(event)
        self.state = state
        return state

    def later(self, ms: int) -> Life:
        self.now += ms
        return self

    def next(self, *, lease_over: bool = False, owner_dead: bool = False, **terms: Any) -> Step:
        known = Terms(**{**{name: getattr(self.terms, name) for name in Terms.__struct_fields__}, **terms})
        return next_step(self.state, known, self.now, lease_over=lease_over, owner_dead=owner_dead)

    def start(self, step: Start | None = None, *, owner: str = "w1", key: str = "key") -> IntentState:
        left = tries(*(unit for unit in range(len(self.state.units)) if unit not in self.state.receipts), key=key)
        step = step or Start("first" if self.state.attempts == 0 else "retry")
        return self.append(decide.start(self.state, step, self.terms, at=self.now, boot_ms=0, owner=owner, tries=left))

    def resend(self) -> IntentState:
        """By its key: another attempt while those before it stay in doubt."""
        return self.start(Start("recovery", "window"))

    def accept(self, attempt: int = 1, unit: int = 0, *, id: str | None = None) -> IntentState:
        outcome = Accepted(f"p{unit}" if id is None else id)
        return self.append(decide.accepted(attempt, unit, "text", outcome, at=self.now, by="worker:w1"))

    def failure(self, attempt: int, unit: int, outcome: Rejected, seen: IntentState | None = None) -> e.AttemptFailed:
        """`seen`: the state that the worker decides with, where it is not the newest."""
        known = seen or self.state
        return decide.failed(known, attempt, unit, outcome, at=self.now, by="worker:w1", terms=self.terms, chance=0.5)

    def fail(
        self,
        failure: str = "transient",
        *,
        attempt: int = 1,
        unit: int = 0,
        seen: IntentState | None = None,
        **more: Any,
    ) -> IntentState:
        return self.append(self.failure(attempt, unit, Rejected(FailureClass(failure), **more), seen))

    def stop(self, attempt: int = 1, unit: int = 0) -> IntentState:
        """The last look ends the attempt."""
        return self.append(self.failure(attempt, unit, decide.superseded("test")))

    def lose(self, attempt: int = 1, unit: int = 0, cause: Cause = Cause.TIMEOUT) -> IntentState:
        return self.append(
            decide.unknown(self.state, attempt, unit, Unknown(cause), at=self.now, by="worker:w1", chance=0.5)
        )

    def take_over(self) -> IntentState:
        return self.append(decide.taken_over(self.state, at=self.now, by="worker:w2"))

    def check(self, verdict: str, *, conclusive: bool = True, retryable: bool = True) -> IntentState:
        step = Check(self.state.next_unit or 0, conclusive)
        found = None
        if verdict == "sent":
            found = decide.accepted(1, step.unit, "text", Accepted("found"), at=self.now, by="worker:w2")
        return self.append(
            decide.checked(
                self.state, step, verdict, at=self.now, by="worker:w2", evidence={}, retryable=retryable, found=found
            )
        )

    def say(self, verdict: str, platform_id: str | None = None) -> IntentState:
        return self.append(
            decide.resolved(
                self.state, verdict, "I looked", at=self.now, by="operator:ann@host", platform_id=platform_id
            )
        )

    def park(self) -> IntentState:
        return self.append(decide.parked(self.state, at=self.now, by="worker:w2"))

    def finish(self) -> IntentState:
        return self.append(decide.finish(self.state, at=self.now, by="worker:w1"))

    def end(self, reason: Any) -> IntentState:
        return self.append(decide.end(self.state, reason, at=self.now, by="worker:w1"))

    def cancel(self) -> IntentState:
        return self.append(decide.cancelled(self.state, "changed my mind", at=self.now, by="gateway:g"))


def doubts(state: IntentState) -> tuple[int, ...]:
    return tuple(attempt.number for attempt in state.doubt)
