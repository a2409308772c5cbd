"""The core's policy for each class of failure, and the schedule of retries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgledger.ledger import decide
from msgledger.ledger import events as e
from msgledger.ledger.intent import Status
from msgledger.ledger.limits import BACKOFF_MS, RETRY_AFTER_MAX_MS
from msgledger.ledger.outcome import Cause, FailureClass, NotDispatched, Proof, Rejected, Unknown

from .intent_kit import HOUR, LEASE, T0, TERMS, Life


def refusal(failure: str | FailureClass, **more: object) -> e.AttemptFailed:
    life = Life()
    life.start()
    return life.failure(1, 0, Rejected(failure, **more))


def final(failure: str) -> Life:
    life = Life()
    life.start()
    life.fail(failure)
    life.finish()
    return life


class TestClasses:
    def test_transient_is_tried_again(self) -> None:
        """FAIL-1: with a growing wait, pending meanwhile."""
        life = Life()
        waits = []
        for attempt in (1, 2, 3):
            life.start()
            due = life.fail("transient", attempt=attempt).due_at
            assert due is not None
            waits.append(due - life.now)
        assert life.state.status is Status.PENDING
        assert waits == [1_000, 5_000, 30_000]  # half of each ceiling

    def test_a_rate_limit_is_kept_to(self) -> None:
        """FAIL-2, SC-08: no earlier than the platform allows."""
        event = refusal("rate_limit", retry_after_s=3600.0, scope="account")
        assert event.next_attempt_at is not None
        assert event.next_attempt_at >= T0 + HOUR
        assert (event.retry_after_ms, event.scope) == (HOUR, "account")

    @pytest.mark.parametrize("failure", ["invalid_payload", "not_found", "conflict", "unknown"])
    def test_a_refusal_is_final_after_one_attempt(self, failure: str) -> None:
        """FAIL-3, FAIL-7, SC-18, SC-48: no retry, no other route."""
        life = final(failure)
        assert (life.state.status, life.state.reason, life.state.attempts) == (Status.FAILED, "rejected", 1)
        assert life.state.failure == failure

    @pytest.mark.parametrize("failure", ["auth", "permission"])
    def test_missing_rights_wait_for_the_configuration(self, failure: str) -> None:
        """FAIL-4, FAIL-5, SC-04: held, never a success and never a dead letter of itself."""
        life = Life()
        life.start()
        state = life.fail(failure)
        assert (state.status, state.hold, state.config, state.refused) == (Status.PENDING, "config", "f1", False)

    def test_cancelled_by_the_channel_is_cancelled(self) -> None:
        """FAIL-8: with proof that nothing was sent."""
        assert final("cancelled").state.status is Status.CANCELLED

    def test_cancelled_after_a_part_is_discarded(self) -> None:
        """FAIL-8, GAP-6: the part stays, with its receipt."""
        life = Life(True, True)
        life.start()
        life.accept(unit=0)
        life.fail("cancelled", unit=1)
        state = life.finish()
        assert (state.status, state.reason, state.platform_ids) == (Status.FAILED, "discarded", ("p0",))

    def test_cancelled_without_proof_is_unknown(self) -> None:
        """FAIL-8: an abort during the request proves nothing."""
        life = Life()
        life.start()
        assert life.lose(cause=Cause.CLOSING).status is Status.UNKNOWN

    def test_the_set_is_closed(self) -> None:
        """FAIL-10: a class of one's own makes no rejection; the error that it raises is an unknown outcome."""
        with pytest.raises(ValueError, match="no_such_class"):
            Rejected("no_such_class")
        with pytest.raises(ValueError, match="no_such_cause"):
            Unknown("no_such_cause")

    def test_the_text_decides_nothing(self) -> None:
        """FAIL-11, SC-18, CORE-5: two refusals of one class are treated alike, whatever they say."""
        one, other = (refusal("transient", detail=text) for text in ("invalid_auth: token expired", "not sent, sorry"))
        same = ("failure", "proof", "next_attempt_at", "hold", "retry_after_ms")
        assert [getattr(one, name) for name in same] == [getattr(other, name) for name in same]

    @pytest.mark.parametrize("failure", list(FailureClass))
    def test_every_failure_says_how_it_is_known(self, failure: FailureClass) -> None:
        """FAIL-11: by a rejection, by what never left, or by the gateway's own word."""
        assert refusal(failure).proof is Proof.REJECTED
        assert refusal(failure, proof=Proof.DECLARED).proof is Proof.DECLARED

    def test_what_never_left_is_tried_again_for_nothing(self) -> None:
        """SC-07, SC-12, SC-23: proof of not sent, and no attempt is charged."""
        life = Life(max_attempts=1)
        life.start()
        state = life.append(life.failure(1, 0, NotDispatched("refused")))
        assert (state.status, state.charged) == (Status.PENDING, 0)

    @pytest.mark.parametrize("failure", list(FailureClass))
    def test_with_an_earlier_attempt_in_doubt_nothing_ends(self, failure: FailureClass) -> None:
        """R2, FAIL-7, SC-41: the unit may be visible already."""
        life = Life(max_attempts=2)
        life.start()
        life.lose()
        life.resend()
        state = life.fail(failure, attempt=2)
        assert (state.status, state.refused, state.hold) == (Status.UNKNOWN, False, None)
        assert state.due_at is not None
        assert state.due_at > life.now
        assert decide.finish(state, at=T0, by="worker:w1") is None


class TestBudget:
    def test_the_last_attempt_ends_it(self) -> None:
        """GAP-4, OB-8, SC-26: with the reason that its attempts are spent."""
        life = Life(max_attempts=2)
        life.start()
        life.fail("transient")
        life.start()
        life.fail("transient", attempt=2)
        state = life.finish()
        assert (state.status, state.reason) == (Status.FAILED, "attempts_exhausted")

    def test_the_count_survives_a_change_of_owner(self) -> None:
        """SC-26: it is in the ledger, not in a process."""
        life = Life(max_attempts=2)
        life.start(owner="w1")
        life.take_over()
        life.later(LEASE).check("not_sent")
        life.start(owner="w2")
        assert life.fail("transient", attempt=2).refused

    def test_the_superseded_attempt_is_free_and_due_at_once(self) -> None:
        """R9: nothing left, so nothing is charged and nothing is waited for."""
        life = Life(max_attempts=1)
        life.start()
        state = life.stop()
        assert (state.status, state.charged, state.due_at) == (Status.PENDING, 0, life.now)
        event = life.events[-1]
        assert isinstance(event, e.AttemptFailed)
        assert (event.code, event.proof, event.bytes_left) == ("superseded", Proof.NEVER_DISPATCHED, False)

    def test_an_attempt_in_the_future_counts_as_now(self) -> None:
        """SC-26: the wait runs from the failure, not from a clock that was ahead."""
        life = Life()
        life.later(HOUR).start()
        due = life.later(-HOUR).fail("transient").due_at
        assert due is not None
        assert due - T0 <= BACKOFF_MS[0]


class TestSchedule:
    @given(st.integers(-3, 100), st.floats(0, 1, exclude_max=True))
    def test_the_wait_stays_below_its_ceiling(self, failures: int, chance: float) -> None:
        """GAP-4: full jitter, never nothing."""
        ceiling = BACKOFF_MS[min(max(failures, 0), len(BACKOFF_MS) - 1)]
        assert 1 <= decide.backoff_ms(failures, chance) <= ceiling

    def test_the_ceilings_grow(self) -> None:
        """FAIL-1, SC-26: the last one repeats."""
        ceilings = [decide.backoff_ms(failures, 0.9999999) for failures in range(8)]
        assert ceilings == sorted(ceilings)
        assert ceilings[4] == ceilings[7] == BACKOFF_MS[-1] - 1

    @given(
        st.sampled_from(["transient", "rate_limit"]),
        st.floats(allow_nan=True, allow_infinity=True),
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 20),
    )
    def test_no_retry_comes_before_the_platform_allows_it(
        self, failure: str, wait_s: float, chance: float, failures: int
    ) -> None:
        """FAIL-2, GAP-4: whatever number a platform names, up to the bound."""
        life = Life()
        state = life.start()
        outcome = Rejected(failure, retry_after_s=wait_s)
        event = decide.failed(state, 1, 0, outcome, at=T0, by="worker:w1", terms=TERMS, chance=chance)
        assert event.next_attempt_at is not None
        assert event.retry_after_ms is not None
        assert 0 <= event.retry_after_ms <= RETRY_AFTER_MAX_MS
        asked_ms = wait_s * 1000 if wait_s > 0 else 0
        assert event.next_attempt_at - T0 >= min(asked_ms, RETRY_AFTER_MAX_MS)
        assert event.next_attempt_at - T0 <= event.retry_after_ms + BACKOFF_MS[-1]
