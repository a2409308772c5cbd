"""What is searched: the size of a world, how its platform behaves, and what its surroundings get right.

Time is ticks. The product's own durations are scaled to them (`scaled`), because only their order matters: the policy
is the product's, the numbers are the model's. A habit is what the dispatcher and the store around the core must do and
the core cannot enforce; switching one off is a mistake that the search has to find.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from msgledger.ledger import decide, steps
from msgledger.ledger.message import Atomicity
from msgledger.ledger.steps import Terms

TICK = 1_000
"""Milliseconds of one tick."""


@dataclass(frozen=True, kw_only=True)
class Habits:
    """What surrounds the core: True is right."""

    durable_first: bool = True
    """No I/O before `AttemptStarted` is in the ledger."""
    head_checked: bool = True
    """A claim is refused where its stream has moved on."""
    unknown_checked: bool = True
    """`OutcomeUnknown` of an attempt that is not the current one is refused."""
    lane_in_claim: bool = True
    """The lane is tested in the transaction that appends the claim."""
    last_look_at_head: bool = True
    last_look_at_deadline: bool = True
    facts_kept: bool = True
    """A fact is appended at whatever head stands."""
    deadline_counts_sleep: bool = True
    takeover_by_duration: bool = True
    """False: by the wall clock of whoever takes over."""
    death_is_proven: bool = True
    silence_is_unknown: bool = True
    """False: a 5xx passes for a rejection."""
    stop_waits: bool = True
    """False: a graceful stop calls a request in flight unsent."""
    copies_marked: bool = True
    conflicts_understood: bool = True
    """A channel reads a 409 on our own key as `accepted before`."""


@dataclass(frozen=True, kw_only=True)
class World:
    """Two workers over one ledger and one platform; two messages of one lane, or one of two units."""

    messages: int = 2
    required: tuple[bool, ...] = (True,)
    """One flag for each unit of each message."""
    atomicity: Atomicity = "all_or_retry_remaining"
    workers: int = 2

    deadline: int = 1
    late: int = 1
    """How long after the deadline the platform may still apply a request."""
    lag: int = 0
    """How long the look-up does not yet show what was applied."""
    declared_settle: int | None = None
    """What the channel says of `late + lag`, where it is not the truth."""
    window: int | None = None
    reconciles: bool = False
    proves_absence: bool = True
    rejects: bool = True
    refuses: bool = False
    """Rejects for good."""
    unreachable: bool = False
    conflicts: bool = False
    """Answers a known key with 409 instead of the receipt."""

    one_host: bool = True
    ahead: tuple[int, int] = (0, 0)
    """How many ticks each worker's wall clock is ahead."""
    clock_bound: int = 0
    credentials: tuple[str, str] = ("a", "a")
    bytes_: tuple[str, str] = ("a", "a")
    """What each worker would send under the same key."""

    at_least_once: bool = False
    max_attempts: int = 2
    attempts: tuple[int, ...] = (3, 1)
    """The search does not look beyond this attempt of each message."""
    expires: int | None = None
    checks: int = 1

    crashes: int = 1
    stops: int = 0
    cancels: int = 0
    verdicts: int = 0
    """How often a person says what became of an unknown outcome."""

    habits: Habits = field(default_factory=Habits)

    @property
    def units(self) -> int:
        return len(self.required)

    def terms(self, worker: int) -> Terms:
        settle = self.late + self.lag if self.declared_settle is None else self.declared_settle
        return Terms(
            deadline_ms=self.deadline * TICK,
            settle_ms=settle * TICK,
            clock_bound_ms=self.clock_bound * TICK,
            window_ms=None if self.window is None else self.window * TICK,
            reconciles=self.reconciles,
            proves_absence=self.proves_absence,
            credential=self.credentials[worker],
        )


@contextmanager
def scaled(world: World) -> Iterator[None]:
    """The product's bounds in ticks: a held outcome one tick after its lease end, a look-up each tick."""
    with ExitStack() as stack:
        for module in (decide, steps):
            stack.enter_context(patch.object(module, "CHECKS_MAX", world.checks))
        stack.enter_context(patch.object(decide, "CHECK_BACKOFF_MS", (TICK,)))
        stack.enter_context(patch.object(steps, "UNRESOLVED_HOLDS_AFTER_MS", TICK))
        yield
