"""The whole policy of sending and recovery: which step follows, in each status and at each edge of time."""

from __future__ import annotations

import msgspec
import pytest
from msgledger.ledger import events as e
from msgledger.ledger.limits import CHECKS_MAX, UNRESOLVED_HOLDS_AFTER_MS
from msgledger.ledger.steps import (
    Check,
    End,
    Finish,
    Park,
    Release,
    Start,
    Step,
    TakeOver,
    Terms,
    Wait,
    next_step,
    same_request,
    window_open,
)

from .intent_kit import HOUR, LEASE, T0, TERMS, Life, tries


def in_doubt(**record: object) -> Life:
    life = Life(**record)
    life.start()
    life.lose()
    return life


class TestPending:
    def test_the_first_attempt_is_due_at_once(self) -> None:
        """OB-5: also for the worker that finds it after its owner's death; nothing is marked."""
        assert Life().next() == Start("first", "none", marked=False)

    def test_a_later_attempt_waits_for_its_time(self) -> None:
        """FAIL-1, SC-08: a restart changes nothing, the time is in the ledger."""
        life = Life()
        life.start()
        due = life.fail("rate_limit", retry_after_s=3600.0).due_at
        assert due is not None
        assert due >= T0 + HOUR
        assert life.next() == Wait(due, "it waits for its next attempt")
        assert life.later(due - T0).next() == Start("retry")

    def test_at_the_age_limit_it_may_start_and_one_ms_later_it_expires(self) -> None:
        """OB-9, SC-16: the edge belongs to the living."""
        life = Life(max_age=HOUR)
        assert life.later(HOUR).next() == Start("first")
        assert life.later(1).next() == End("expired")

    def test_spent_attempts_end_it(self) -> None:
        """R8, OB-8, SC-26: also where nothing but a verdict brought it back."""
        life = Life(max_attempts=1)
        life.start()
        life.lose()
        life.later(LEASE).check("not_sent")
        assert life.next() == End("attempts_exhausted")

    def test_what_was_refused_only_ends(self) -> None:
        """SC-18: a refusal is never retried as it is."""
        life = Life()
        life.start()
        life.fail("invalid_payload")
        assert life.later(HOUR).next() == Finish()

    def test_a_hold_for_the_configuration_ends_with_its_change(self) -> None:
        """FAIL-4, FAIL-5: not before, and never past its age."""
        for failure in ("auth", "permission"):
            life = Life()
            life.start()
            life.fail(failure)
            assert isinstance(life.later(HOUR).next(), Wait)
            assert life.next(config="f2") == Release()
            assert life.later(6 * HOUR).next() == End("expired")

    def test_released_it_starts(self) -> None:
        """FAIL-4: the change of configuration wakes it."""
        life = Life()
        life.start()
        life.fail("auth")
        life.append(e.IntentHeld(at=life.now, by="worker:w1"))
        assert life.next(config="f2") == Start("retry")

    def test_a_person_who_said_not_sent_has_it_sent(self) -> None:
        """R4, G4: with the licence of a person."""
        life = in_doubt()
        life.say("not-sent")
        assert life.next() == Start("operator", "operator")

    def test_a_person_who_said_sent_licences_nothing(self) -> None:
        """R3, G4: the rest of the batch is an ordinary retry."""
        life = Life(True, True)
        life.start()
        life.lose(unit=0)
        life.say("sent", "p0")
        assert life.next() == Start("retry", "none")


class TestSending:
    def test_a_living_owner_is_never_taken_over(self) -> None:
        """OB-4, R10, SC-27: however late the wall clock says it is."""
        life = Life()
        life.start()
        assert life.later(10 * HOUR).next() == Wait(T0 + LEASE, "an attempt is in flight")

    def test_a_dead_owner_or_an_ended_lease_is_taken_over(self) -> None:
        """OB-6, SC-11: either is enough."""
        life = Life()
        life.start()
        assert life.next(owner_dead=True) == TakeOver()
        assert life.next(lease_over=True) == TakeOver()

    def test_age_and_budget_do_not_end_it(self) -> None:
        """R4: expiry needs pending."""
        life = Life(max_age=1, max_attempts=1)
        life.start()
        assert isinstance(life.later(HOUR).next(), Wait)


class TestCommitting:
    def test_it_only_finishes(self) -> None:
        """GAP-3, SC-15, REC-3: whatever the clock says and whatever the channel can."""
        life = Life()
        life.start()
        life.accept()
        for more in ({}, {"lease_over": True}, {"reconciles": True, "window_ms": 10 * HOUR}):
            assert life.later(HOUR).next(**more) == Finish()


class TestUnknown:
    def test_without_a_look_up_it_is_held_at_the_lease_end(self) -> None:
        """R6, GAP-5, UNK-2: no earlier, as it costs nothing to wait for a late receipt."""
        life = in_doubt()
        assert life.next() == Wait(T0 + LEASE, "its outcome is unknown")
        assert life.later(LEASE).next(lease_over=True) == Park()

    def test_dead_owner_or_not_nothing_is_sent_again(self) -> None:
        """UNK-1, G4, OB-6: over many passes."""
        life = Life()
        life.start()
        life.take_over()
        for _ in range(20):
            step = life.later(HOUR // 4).next(lease_over=True, owner_dead=True)
            assert not isinstance(step, Start)
            if isinstance(step, Park):
                life.park()

    def test_a_look_up_before_the_lease_end_can_prove_only_sent(self) -> None:
        """R1, REC-6: it is asked early, and its silence proves nothing."""
        life = Life()
        life.start()
        life.take_over()
        assert life.next(reconciles=True, proves_absence=True) == Check(0, conclusive=False)

    def test_a_look_up_after_the_lease_end_is_conclusive(self) -> None:
        """R1, UNK-4: where the channel can prove absence."""
        life = in_doubt()
        life.later(LEASE)
        assert life.next(lease_over=True, reconciles=True, proves_absence=True) == Check(0, conclusive=True)
        assert life.next(lease_over=True, reconciles=True) == Check(0, conclusive=False)

    def test_the_lease_end_is_measured_not_read_off_a_clock(self) -> None:
        """R1, R10: the wall clock is past it, and it is not over."""
        life = in_doubt()
        assert life.later(HOUR).next(reconciles=True, proves_absence=True) == Check(0, conclusive=False)

    def test_absence_under_one_key_says_nothing_of_a_copy_under_another(self) -> None:
        """R1, G4: found by the model: the marked copy was absent, the first message was not."""
        life = in_doubt(on_unknown="at_least_once")
        life.start(Start("recovery", "at_least_once", marked=True), key="copy")
        life.lose(attempt=2)
        life.later(LEASE)
        assert life.next(lease_over=True, reconciles=True, proves_absence=True) == Check(0, conclusive=False)

    def test_a_look_up_waits_for_its_time(self) -> None:
        """SC-10: it is not asked at each pass."""
        life = in_doubt()
        life.later(LEASE).check("unresolved")
        assert isinstance(life.next(lease_over=True, reconciles=True), Wait)

    def test_unsettled_a_minute_after_the_lease_end_it_is_held(self) -> None:
        """R6, GAP-5: the lane goes on."""
        life = in_doubt()
        life.later(LEASE).check("unresolved")
        assert life.later(UNRESOLVED_HOLDS_AFTER_MS - 1).next(lease_over=True) == Park()  # no look-up at all
        life.check("unresolved")
        assert isinstance(life.next(lease_over=True, reconciles=True), Wait)
        assert life.later(1).next(lease_over=True, reconciles=True) == Park()

    def test_held_it_is_looked_up_but_never_sent(self) -> None:
        """R6, GAP-5: a find still settles it; window and policy open nothing."""
        life = in_doubt(on_unknown="at_least_once")
        life.park()
        able = {"lease_over": True, "reconciles": True, "proves_absence": True, "window_ms": 100 * HOUR}
        assert life.later(LEASE).next(**able) == Check(0, conclusive=False)
        assert life.next(lease_over=True, window_ms=100 * HOUR) == Wait(None, "it is held until a person decides")

    def test_the_checks_are_bounded_and_end_in_a_hold(self) -> None:
        """GAP-5, SC-10: at growing intervals."""
        life = in_doubt()
        life.later(LEASE)
        waits: list[int] = []
        for _ in range(CHECKS_MAX):
            due = life.check("unresolved").due_at
            if due is not None:
                waits.append(due - life.now)
                life.later(due - life.now)
        assert waits == sorted(waits)
        assert life.state.due_at is None
        assert life.next(lease_over=True, reconciles=True) == Park()

    def test_past_its_age_it_is_held_not_expired(self) -> None:
        """R4: it may be visible."""
        life = in_doubt(max_age=1)
        assert life.later(HOUR).next(lease_over=True) == Park()

    def test_held_for_a_channel_that_is_back_it_goes_on(self) -> None:
        """GAP-2, REC-11: as a pending one does."""
        for life in (Life(), in_doubt()):
            life.append(e.IntentHeld(at=life.now, by="worker:w1", hold="channel"))
            assert life.next() == Release()


class TestWindow:
    WINDOW = 10 * 60_000

    def open(self, life: Life, **more: object) -> bool:
        terms = {name: getattr(TERMS, name) for name in Terms.__struct_fields__} | {"window_ms": self.WINDOW} | more
        return window_open(life.state, Terms(**terms), life.now)

    def test_inside_it_the_same_key_goes_out_again(self) -> None:
        """R4, R5: straight from unknown, with its licence."""
        life = in_doubt()
        assert life.later(3_000).next(window_ms=self.WINDOW) == Start("recovery", "window")

    def test_it_must_outlast_the_attempt(self) -> None:
        """R5: deadline, settle and clock bound have to fit in, to the millisecond."""
        life = in_doubt()
        life.later(self.WINDOW - LEASE)
        assert self.open(life)
        assert not self.open(life.later(1))

    def test_it_is_counted_from_the_first_attempt_in_doubt(self) -> None:
        """R5: a resend does not prolong it."""
        life = in_doubt()
        life.later(self.WINDOW - LEASE)
        life.resend()
        life.lose(attempt=2)
        assert not self.open(life.later(1))

    def test_an_attempt_that_is_proven_unsent_does_not_count(self) -> None:
        """R5, R2: the first that may have arrived is the second."""
        life = in_doubt()
        life.later(self.WINDOW - LEASE)
        life.resend()
        life.lose(attempt=2)
        life.fail("transient", attempt=1)
        assert self.open(life.later(1))

    def test_another_credential_closes_it(self) -> None:
        """R5: the platform knows our key by it."""
        assert not self.open(in_doubt(), credential="c2")

    def test_a_clock_behind_the_ledger_closes_it(self) -> None:
        """R5: the window would seem open for too long."""
        life = in_doubt()
        assert self.open(life)
        assert not self.open(life.later(-1))

    def test_a_marked_copy_closes_it(self) -> None:
        """R5: a copy has another text and another key."""
        life = in_doubt()
        life.start(Start("recovery", "at_least_once", marked=True))
        life.lose(attempt=2)
        assert not self.open(life)

    def test_without_evidence_there_is_none(self) -> None:
        """R5, CORE-2: a channel that declares no window has no licence."""
        assert not self.open(in_doubt(), window_ms=None)

    def test_the_budget_and_the_age_bind_a_resend(self) -> None:
        """R4: it is a claim like any other."""
        spent = in_doubt(max_attempts=1)
        old = in_doubt(max_age=1_000)
        for life in (spent, old):
            assert not isinstance(life.later(3_000).next(window_ms=self.WINDOW), Start)

    def test_where_a_look_up_exists_it_comes_first(self) -> None:
        """REC-6: the window is for what a look-up could not tell. One look is enough, before each resend."""
        life = in_doubt()
        able = {"reconciles": True, "window_ms": self.WINDOW}
        assert isinstance(life.later(3_000).next(**able), Check)
        life.check("not_sent", conclusive=False)
        assert life.next(**able) == Start("recovery", "window")
        life.resend()
        life.lose(attempt=2)
        assert isinstance(life.later(12_000).next(**able), Check)

    def test_a_resend_that_was_told_to_wait_waits(self) -> None:
        """FAIL-2, REC-6: the platform's wait binds the look-up and the resend that follow."""
        life = in_doubt()
        able = {"reconciles": True, "window_ms": self.WINDOW}
        life.later(3_000).check("unresolved", conclusive=False)
        life.resend()
        life.fail("rate_limit", attempt=2, retry_after_s=60)
        assert isinstance(life.later(59_000).next(**able), Wait)
        assert isinstance(life.later(10_000).next(**able), Check)

    def test_only_the_same_request_counts(self) -> None:
        """R5, BAT-1, SC-39: key and bytes, of the unit in doubt in each attempt in doubt."""
        life = Life(True, True)
        life.start()
        state = life.lose(unit=0)
        assert same_request(state, tries(0, 1))
        assert not same_request(state, tries(0, 1, digest="other"))
        assert not same_request(state, tries(0, 1, key="other"))
        assert not same_request(state, tries(1))
        assert same_request(state, (*tries(0), *tries(1, digest="other")))  # unit 1 has not gone out


class TestAtLeastOnce:
    def test_the_copy_carries_the_marker(self) -> None:
        """UNK-7, OB-6: and says under which licence it goes."""
        life = in_doubt(on_unknown="at_least_once")
        assert life.later(3_000).next() == Start("recovery", "at_least_once", marked=True)

    def test_twice_dead_it_still_carries_the_marker(self) -> None:
        """OB-7: the second recovery knows of the first attempt."""
        life = Life(on_unknown="at_least_once")
        life.start()
        life.take_over()
        life.start(Start("recovery", "at_least_once", marked=True))
        life.take_over()
        assert life.next() == Start("recovery", "at_least_once", marked=True)

    def test_the_default_is_never_to_copy(self) -> None:
        """UNK-7, G4: only the intent's own policy permits it."""
        assert not isinstance(in_doubt().later(HOUR).next(lease_over=True), Start)

    def test_a_look_up_comes_first(self) -> None:
        """REC-6, UNK-7: a copy is for what the look-up could not tell after the lease end."""
        life = in_doubt(on_unknown="at_least_once")
        assert isinstance(life.later(LEASE).next(lease_over=True, reconciles=True), Check)
        life.check("unresolved")
        assert isinstance(life.later(15_000).next(lease_over=True, reconciles=True), Start)


@pytest.mark.parametrize("status", ["pending", "sending", "committing", "unknown_after_send"])
def test_every_open_status_has_a_step(status: str) -> None:
    """GAP-2: recovery has something to do in all four."""
    life = Life()
    if status != "pending":
        life.start()
    if status == "committing":
        life.accept()
    if status == "unknown_after_send":
        life.lose()
    assert life.state.status == status
    assert not isinstance(life.later(LEASE).next(lease_over=True), Wait)


def test_the_margin_covers_settle_and_clocks() -> None:
    """R1: a lease ends no earlier than a request can land, on any of the clocks."""
    terms = Terms(deadline_ms=30_000, settle_ms=15_000, clock_bound_ms=5_000)
    assert terms.margin_ms == 20_000
    life = Life(terms=terms)
    assert life.start().lease_ends_at == T0 + 50_000


class TestCallbacks:
    """TGT-2: what only a function in one process may send."""

    def next(self, life: Life, *, gone: bool) -> Step:
        return next_step(life.state, life.terms, life.now, lease_over=False, callback_gone=gone)

    def test_while_it_is_there_it_is_sent_like_any_other(self) -> None:
        assert self.next(Life(callback="w1"), gone=False) == Start("first")

    def test_with_its_process_the_message_ends(self) -> None:
        """SC-54: at once, not at its age."""
        assert self.next(Life(callback="w1"), gone=True) == End("expired")
        assert self.next(Life(), gone=True) == Start("first"), "others need no callback"

    def test_it_serves_once(self) -> None:
        """FAIL-2, FAIL-4: no failure is followed by another call, and none holds it."""
        for failure in ("transient", "rate_limit", "auth", "cancelled"):
            life = Life(callback="w1")
            life.start()
            life.fail(failure, bytes_left=False)
            assert life.next() == Finish(), failure

    def test_doubt_is_neither_ended_nor_sent_again(self) -> None:
        """G4, UNK-5: not in an open window, not as a copy; proof of not sent ends it."""
        open_window = msgspec.structs.replace(TERMS, window_ms=10 * HOUR)
        life = Life(callback="w1", on_unknown="at_least_once", terms=open_window)
        life.start()
        life.lose()
        life.later(LEASE)
        assert life.next(lease_over=True) == Park()
        proved = Life(callback="w1")
        proved.start()
        proved.lose()
        proved.later(LEASE).check("not_sent")
        assert self.next(proved, gone=False) == End("expired")
