"""When a channel may be asked at all: its readiness, the wait it asked for, probing after failures, and the pace.

All of it is memory of this process. What must survive a restart stands with each intent in the ledger.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec

from ..ledger.decide import RETRYABLE, UNREADABLE, backoff_ms
from ..ledger.limits import IN_FLIGHT_MAX, PROBE_AFTER_FAILURES, PROBE_WAIT_MAX_MS
from ..ledger.outcome import FailureClass, Outcome, Rejected
from ..ledger.store.clock import Clock
from .surface import Channel

Account = tuple[str, str]
"""(channel, account)"""


class Line(msgspec.Struct):
    """What is known of one account of a channel. Times are milliseconds on the boot clock."""

    unreached: int = 0
    """Attempts in a row that did not reach the platform, or were told that the whole account must wait."""
    in_flight: int = 0
    closed_until: int = 0
    ready: bool | None = None
    tokens: float = 1.0
    filled_at: int = 0
    per_second: float | None = None


class Gate:
    """One per dispatcher."""

    def __init__(self, clock: Clock, chance: random.Random, accounts: int = 1) -> None:
        """`accounts`: among how many the attempts in flight are shared out once there are many."""
        self._share = max(1, IN_FLIGHT_MAX // max(1, accounts))
        self._in_flight = 0
        self._clock = clock
        self._chance = chance
        self._lines: dict[Account, Line] = {}

    def line(self, account: Account) -> Line:
        return self._lines.setdefault(account, Line())

    def open(self, account: Account, *, redelivery: bool, beside: int = 0) -> bool:
        """Whether one more attempt may start now, `beside` so many that are about to. After failures in a row, one at
        a time probes.

        A redelivery also takes a token of the account's pace, where it has one.
        """
        line = self.line(account)
        now = self._clock.boot_ms()
        if now < line.closed_until:
            return False
        if line.unreached >= PROBE_AFTER_FAILURES and line.in_flight + beside > 0:
            return False
        if line.in_flight + beside >= self._share and self._in_flight + beside >= IN_FLIGHT_MAX // 2:
            return False  # one that answers nobody must not take the others' places
        return not redelivery or self._paced(line, now)

    def closed_for_ms(self, account: Account) -> int:
        """How long until it opens by itself."""
        return max(0, self.line(account).closed_until - self._clock.boot_ms())

    def began(self, account: Account) -> None:
        self.line(account).in_flight += 1
        self._in_flight += 1

    def ended(self, account: Account, outcome: Outcome | None) -> bool | None:
        """Takes note of an outcome. True where the account just came back, False where it just went away."""
        line = self.line(account)
        if outcome is None:
            line.in_flight -= 1
            self._in_flight -= 1
            return None
        if not isinstance(outcome, Rejected) or (outcome.bytes_left and outcome.scope != "account"):
            back = line.unreached >= PROBE_AFTER_FAILURES
            line.unreached = 0
            line.closed_until = 0
            return True if back else None
        if outcome.failure not in RETRYABLE or outcome.code == UNREADABLE:
            return None  # what was stopped here says nothing of the platform
        now = self._clock.boot_ms()
        closed = now < line.closed_until
        line.unreached += not closed  # of those that were in flight together, one counts
        if outcome.failure is FailureClass.RATE_LIMIT and outcome.retry_after_s is not None:
            line.closed_until = max(line.closed_until, now + int(outcome.retry_after_s * 1000))
        elif line.unreached >= PROBE_AFTER_FAILURES and not closed:
            wait = backoff_ms(line.unreached - PROBE_AFTER_FAILURES, self._chance.random())
            line.closed_until = now + min(wait, PROBE_WAIT_MAX_MS)
        return False if line.unreached == PROBE_AFTER_FAILURES and not closed else None

    def readiness(self, channels: Mapping[Account, Channel]) -> list[tuple[Account, bool]]:
        """The channels whose `ready` has changed since the last call, with what it is now."""
        changed: list[tuple[Account, bool]] = []
        for account, channel in channels.items():
            line = self.line(account)
            ready = channel.ready
            if ready != line.ready:
                changed.append((account, ready))
                line.ready = ready
                line.per_second = channel.capabilities.per_second
        return changed

    def _paced(self, line: Line, now: int) -> bool:
        if line.per_second is None:
            return True
        gained = (now - line.filled_at) / 1000 * line.per_second
        line.tokens = min(max(1.0, line.per_second), line.tokens + gained)
        line.filled_at = now
        if line.tokens < 1.0:
            return False
        line.tokens -= 1.0
        return True
