"""The table of an intent's states: each row is an event, where it leads from, and where to."""

from __future__ import annotations

import pytest
from msgledger.ledger import events as e
from msgledger.ledger import fold
from msgledger.ledger.intent import OPEN_ENDED, TERMINAL, Status
from msgledger.ledger.outcome import Cause, FailureClass
from msgledger.ledger.steps import Start

from .intent_kit import LEASE, STREAM, T0, Life, doubts, recorded


def ended(how: str) -> Life:
    life = Life()
    match how:
        case "sent":
            life.start()
            life.accept()
            life.finish()
        case "failed":
            life.start()
            life.fail("invalid_payload")
            life.finish()
        case "discarded":
            life.start()
            life.lose()
            life.say("discard")
        case "cancelled":
            life.cancel()
    return life


class TestFromPending:
    def test_a_recorded_intent_is_pending_and_owed(self) -> None:
        """OB-1, CORE-1: from its first event."""
        state = Life().state
        assert (state.status, state.attempts, state.owes, state.head) == (Status.PENDING, 0, True, 0)

    def test_recording_again_changes_nothing(self) -> None:
        """OB-3: pending, under way or sent, the intent that stands stands."""
        for life in (Life(), ended("sent")):
            before = life.state
            after = life.append(recorded(key="other"))
            assert (after.status, after.key, after.receipts) == (before.status, before.key, before.receipts)

    def test_a_claim_leads_to_sending_and_counts(self) -> None:
        """REC-2: the claim is the attempt, and it says who."""
        state = Life().start(owner="w9")
        assert state.current is not None
        assert (state.status, state.attempts, state.charged, state.current.owner) == (Status.SENDING, 1, 1, "w9")

    def test_a_cancel_leads_to_cancelled(self) -> None:
        """GAP-6: while nothing was ever sent."""
        assert Life().cancel().status is Status.CANCELLED

    def test_age_leads_to_failed(self) -> None:
        """SC-16, OB-8: with its reason."""
        state = Life().end("expired")
        assert (state.status, state.reason) == (Status.FAILED, "expired")


class TestFromSending:
    def test_a_receipt_of_one_unit_keeps_it_sending(self) -> None:
        """BAT-7, SC-37: and the receipt stands before the next unit starts."""
        life = Life(True, True)
        life.start()
        state = life.accept(unit=0)
        assert (state.status, state.next_unit, sorted(state.receipts)) == (Status.SENDING, 1, [0])

    def test_the_last_receipt_leads_to_committing(self) -> None:
        """SC-15, GAP-3: with the receipt at hand nothing is ambiguous any more."""
        life = Life(True, True)
        life.start()
        life.accept(unit=0)
        assert life.accept(unit=1).status is Status.COMMITTING

    def test_every_step_of_a_send_is_kept(self) -> None:
        """OB-2: the states in order, one for each event."""
        life = ended("sent")
        states = [fold.fold(STREAM, [(event, 7, T0) for event in life.events[:n]]) for n in range(1, 5)]
        assert [state.status for state in states] == ["pending", "sending", "committing", "sent"]

    def test_a_failure_that_may_pass_leads_to_pending(self) -> None:
        """FAIL-1, SC-02: with the time of the next attempt."""
        life = Life()
        life.start()
        state = life.fail("transient")
        assert state.status is Status.PENDING
        assert state.due_at is not None
        assert state.due_at > life.now

    def test_a_final_failure_leads_to_failed(self) -> None:
        """FAIL-3: with the class as its reason."""
        state = ended("failed").state
        assert (state.status, state.reason, state.failure) == (Status.FAILED, "rejected", FailureClass.INVALID_PAYLOAD)

    @pytest.mark.parametrize("cause", [Cause.TIMEOUT, Cause.RESET, Cause.SERVER_ERROR, Cause.NO_IDENTITY, Cause.RAISED])
    def test_silence_leads_to_unknown_never_to_pending(self, cause: Cause) -> None:
        """UNK-1, FAIL-9, GAP-10: whatever kind of silence, a success without an id included."""
        life = Life()
        life.start()
        state = life.lose(cause=cause)
        assert (state.status, state.reason, doubts(state)) == (Status.UNKNOWN, cause.value, (1,))

    def test_a_lost_owner_leads_to_unknown(self) -> None:
        """SC-11, OB-6: whatever it had begun is in doubt."""
        life = Life()
        life.start()
        state = life.take_over()
        assert (state.status, state.reason, doubts(state)) == (Status.UNKNOWN, "owner_lost", (1,))


class TestFromUnknown:
    def test_sent_leads_to_sent_without_a_send(self) -> None:
        """UNK-3: the receipt that was found is the receipt."""
        life = Life()
        life.start()
        life.lose()
        life.check("sent")
        state = life.finish()
        assert (state.status, state.platform_ids, state.attempts) == (Status.SENT, ("found",), 1)

    def test_not_sent_leads_to_pending_and_one_new_attempt(self) -> None:
        """UNK-4: exactly one."""
        life = Life()
        life.start()
        life.later(LEASE).lose()
        state = life.check("not_sent")
        assert (state.status, state.doubt, state.due_at) == (Status.PENDING, (), life.now)
        assert life.next() == Start("retry")

    def test_unresolved_stays_unknown(self) -> None:
        """UNK-5, GAP-5: with a time for the next check."""
        life = Life()
        life.start()
        life.lose()
        state = life.later(LEASE).check("unresolved")
        assert (state.status, state.checks, doubts(state)) == (Status.UNKNOWN, 1, (1,))
        assert state.due_at is not None
        assert state.due_at > life.now

    def test_a_hold_stays_unknown(self) -> None:
        """GAP-5, SC-06: held, and still owed."""
        life = Life()
        life.start()
        life.lose()
        state = life.park()
        assert (state.status, state.hold, state.owes) == (Status.UNKNOWN, "unresolved", True)

    def test_a_receipt_that_comes_late_settles_it(self) -> None:
        """G5, UNK-8: from the old owner, also while it is held."""
        for held in (False, True):
            life = Life()
            life.start()
            life.lose()
            if held:
                life.park()
            life.accept()
            assert life.finish().status is Status.SENT

    def test_a_resend_by_key_leads_to_sending_with_the_doubt_kept(self) -> None:
        """R4: straight from unknown, and the first attempt stays in doubt."""
        life = Life()
        life.start()
        life.lose()
        state = life.resend()
        assert (state.status, state.attempts, doubts(state)) == (Status.SENDING, 2, (1,))

    def test_a_person_discards_it(self) -> None:
        """G7: with a reason, and the doubt remembered for the lane."""
        state = ended("discarded").state
        assert (state.status, state.reason, doubts(state)) == (Status.FAILED, "discarded", (1,))


LATER_EVENTS = [
    e.AttemptStarted(
        at=T0, by="w", attempt=9, owner="w", units=(), deadline_ms=1, margin_ms=1, boot_ms=0, credential="c"
    ),
    e.UnitAccepted(at=T0, by="w", attempt=1, unit=0, parts=(e.AcceptedPart("other"),)),
    e.AttemptFailed(at=T0, by="w", attempt=1, unit=0, failure="transient", proof="rejected", next_attempt_at=T0),
    e.OutcomeUnknown(at=T0, by="w", attempt=1, unit=0, cause=Cause.TIMEOUT),
    e.OutcomeReconciled(at=T0, by="operator:ann@host", unit=0, attempts=(1,), verdict="not_sent"),
    e.OutcomeReconciled(at=T0, by="w", unit=0, attempts=(1,), verdict="sent", parts=(e.AcceptedPart("x"),)),
    e.OutcomeReconciled(at=T0, by="w", unit=0, attempts=(1,), verdict="unresolved", hold="unresolved"),
    e.IntentCommitted(at=T0, by="w"),
    e.IntentFailed(at=T0, by="w", reason="expired"),
    e.IntentCancelled(at=T0, by="w", reason="late"),
    e.IntentHeld(at=T0, by="w", hold="config", config="f"),
    e.BatchPlanned(
        at=T0, by="w", plan=2, units=(e.PlannedUnit(),) * 3, content_mac="m", why=FailureClass.INVALID_PAYLOAD
    ),
    e.DeliveryReported(at=T0, by="w", platform_id="p0", state="read"),
    e.Dismissed(at=T0, by="operator:ann@host", reason="seen"),
]


class TestTerminal:
    @pytest.mark.parametrize("how", ["sent", "failed", "discarded", "cancelled"])
    @pytest.mark.parametrize("event", LATER_EVENTS, ids=lambda event: type(event).__name__)
    def test_no_event_changes_how_it_ended(self, how: str, event: e.Event) -> None:
        """G5, OB-11: terminal is terminal, for facts and for decisions."""
        life = ended(how)
        before = life.state
        after = life.append(event)
        assert after.head == before.head + 1
        assert (after.status, after.reason, after.hold, after.current, after.due_at, after.units) == (
            before.status,
            before.reason,
            None,
            None,
            None,
            before.units,
        )

    def test_a_late_failure_after_delivery_is_a_contradiction(self) -> None:
        """OB-11: recorded and counted; it stays sent."""
        state = ended("sent")
        after = state.fail("transient")
        assert (after.status, after.contradictions, after.platform_ids) == (Status.SENT, 1, ("p0",))

    def test_a_late_receipt_after_the_end_is_a_contradiction(self) -> None:
        """OB-11: it is shown, never applied in silence."""
        after = ended("discarded").accept()
        assert (after.status, after.contradictions, after.receipts) == (Status.FAILED, 1, {})

    def test_a_new_attempt_on_an_ended_intent_is_refused(self) -> None:
        """OB-11, CORE-7: there is no step that sends it."""
        for how in ("sent", "failed", "discarded", "cancelled"):
            assert type(ended(how).next(lease_over=True, owner_dead=True)).__name__ == "Wait"


class TestWhatStaysAndWhatGoes:
    def test_a_claim_ends_hold_and_wait(self) -> None:
        """REC-2, FAIL-4: what it waited for is over."""
        life = Life()
        life.start()
        life.fail("auth")
        state = life.start()
        assert (state.hold, state.config, state.due_at, state.reopened) == (None, None, None, False)

    def test_the_stamp_of_the_ledger_is_kept(self) -> None:
        """R5, R10: a clock that runs behind is known by it."""
        life = Life()
        assert life.later(5).start().updated_at == T0 + 5
        assert life.state.recorded_at == T0

    def test_the_time_of_the_first_receipt_is_kept(self) -> None:
        """OB-2: a later part or copy does not move it."""
        life = Life(True, True)
        life.start()
        life.later(5).accept(unit=0)
        life.later(5).accept(unit=1)
        assert life.state.accepted_at == T0 + 5

    def test_part_of_what_is_held_may_come_late_and_it_stays_held(self) -> None:
        """R6, R3: the rest is a person's to decide."""
        life = Life(True, True)
        life.start()
        life.lose(unit=0)
        life.park()
        state = life.accept(unit=0)
        assert (state.status, state.hold, state.doubt, state.next_unit) == (Status.UNKNOWN, "unresolved", (), 1)

    def test_an_unknown_outcome_grows_the_wait_and_renews_the_checks(self) -> None:
        """SC-10, GAP-5: each attempt in doubt is looked up anew."""
        life = Life()
        life.start()
        life.later(LEASE).lose()
        life.check("unresolved")
        life.resend()
        assert life.state.checks == 1
        state = life.lose(attempt=2)
        assert (state.checks, state.failures) == (0, 2)

    def test_an_unknown_outcome_may_be_held_at_once(self) -> None:
        """GAP-5: where the event says so."""
        life = Life()
        life.start()
        event = e.OutcomeUnknown(at=T0, by="w", attempt=1, unit=0, cause=Cause.TIMEOUT, hold="unresolved")
        assert life.append(event).hold == "unresolved"

    def test_a_verdict_ends_the_checks(self) -> None:
        """UNK-4: pending begins anew, without the cause of the doubt."""
        life = Life()
        life.start()
        life.later(LEASE).lose()
        life.check("unresolved")
        state = life.check("not_sent")
        assert (state.checks, state.reason) == (0, None)

    def test_committing_owes_nothing_and_is_due(self) -> None:
        """GAP-3: no hold, no attempt, no cause of a doubt."""
        life = Life()
        life.start()
        life.lose()
        life.park()
        state = life.accept()
        assert (state.hold, state.current, state.reason, state.due_at) == (None, None, None, 0)
        life = Life()
        life.start()
        assert life.accept().current is None

    def test_each_turn_says_when_it_goes_on(self) -> None:
        """REC-8, SC-10: at the time of the event, or at the one that it names."""
        parts = Life(True, True)
        parts.start()
        parts.take_over()
        assert parts.later(5).accept(unit=0).due_at == T0 + 5
        life = Life()
        life.start()
        assert life.lose().due_at == T0 + 1_000
        life.resend()
        state = life.later(7).fail("transient", attempt=2)
        assert state.due_at == T0 + 7 + 5_000  # half the ceiling of a second failure
        life.park()
        life.later(LEASE).check("not_sent")
        assert life.state.due_at is None
        assert Life(not_before=T0 + 9).state.due_at == T0 + 9

    def test_what_is_found_is_a_success_like_any_other(self) -> None:
        """UNK-3: its time is kept, and the row of failures is over."""
        life = Life(True, True)
        life.start()
        life.lose(unit=0)
        state = life.later(5).check("sent")
        assert (state.accepted_at, state.failures) == (T0 + 5, 0)

    def test_an_end_says_which_failure_is_behind_it(self) -> None:
        """G7, OB-8: its own, else the last one."""
        life = Life()
        state = life.append(
            e.IntentFailed(at=T0, by="w", reason="rejected", failure=FailureClass.NOT_FOUND, code="gone")
        )
        assert (state.failure, state.code) == (FailureClass.NOT_FOUND, "gone")

    def test_a_hold_names_the_configuration_that_it_waits_for(self) -> None:
        """FAIL-4: its fingerprint."""
        state = Life().append(e.IntentHeld(at=T0, by="w", hold="config", config="f9"))
        assert (state.hold, state.config) == ("config", "f9")

    def test_an_end_leaves_nothing_to_do(self) -> None:
        """G7: no hold, no wait, no end that is still due."""
        for how in ("sent", "failed", "discarded", "cancelled"):
            state = ended(how).state
            assert (state.hold, state.due_at, state.refused, state.current) == (None, None, False, None)

    def test_an_end_in_flight_remembers_the_request(self) -> None:
        """R6: as an attempt in doubt, for the lane."""
        life = Life()
        life.start()
        state = life.append(e.IntentFailed(at=T0, by="w", reason="discarded"))
        assert (doubts(state), state.current, state.holds_lane()) == ((1,), None, T0 + LEASE)

    def test_a_report_of_the_platform_changes_no_status(self) -> None:
        """OB-2: neither before nor after the end."""
        event = e.DeliveryReported(at=T0, by="w", platform_id="p0", state="read")
        for life in (Life(), ended("sent")):
            before = life.state.status
            state = life.append(event)
            assert (state.status, state.delivery) == (before, "read")


class TestLane:
    """GAP-8, R6, R7: until when a message is in the way of those behind it."""

    def test_it_is_in_the_way_until_it_ends(self) -> None:
        """R7: pending, sending, unknown and committing alike."""
        life = Life()
        assert life.state.holds_lane() == OPEN_ENDED
        assert life.start().holds_lane() == OPEN_ENDED
        assert life.lose().holds_lane() == OPEN_ENDED
        assert life.accept().holds_lane() == OPEN_ENDED
        assert life.finish().holds_lane() is None

    def test_held_frees_it_at_the_lease_end(self) -> None:
        """R6: of the last attempt, because its request may land until then."""
        life = Life()
        life.start()
        life.later(10_000).lose()
        life.resend()
        life.lose(attempt=2)
        assert life.park().holds_lane() == T0 + 10_000 + LEASE

    def test_discarded_frees_it_at_the_lease_end(self) -> None:
        """R6: ended, but its request may still land."""
        assert ended("discarded").state.holds_lane() == T0 + LEASE

    def test_held_for_its_configuration_frees_it_at_once(self) -> None:
        """R6, FAIL-4: nothing is in doubt, so nothing can land."""
        life = Life()
        life.start()
        assert life.fail("auth").holds_lane() is None

    def test_settled_by_a_person_it_is_in_the_way_again(self) -> None:
        """R6: it waits for its turn, out of order but alone."""
        life = Life()
        life.start()
        life.lose()
        life.park()
        assert life.say("not-sent").holds_lane() == OPEN_ENDED

    def test_a_guard_finds_it_by_lane_and_key(self) -> None:
        """R7: what other streams may ask about; in its lane it counts while it is in the way there."""
        life = Life()
        waits = fold.memberships(life.state)
        assert waits == (("lane", fold.Member(7, OPEN_ENDED, False)), ("key", fold.Member(7)))
        life.start()
        assert fold.memberships(life.state)[0] == ("lane", fold.Member(7, OPEN_ENDED, True))
        life.accept()
        life.finish()
        assert fold.memberships(life.state) == (("lane", None), ("key", fold.Member(7)))


def test_all_statuses_are_terminal_or_worked_on() -> None:
    """GAP-2: four open statuses, three ends."""
    open_ = set(Status) - TERMINAL
    assert open_ == {Status.PENDING, Status.SENDING, Status.COMMITTING, Status.UNKNOWN}
