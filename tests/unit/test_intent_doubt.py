"""Doubt belongs to an attempt, a verdict to a unit: what each fact and verdict moves, and what it leaves alone."""

from __future__ import annotations

from msgledger.ledger import events as e
from msgledger.ledger.fold import known
from msgledger.ledger.intent import Status
from msgledger.ledger.outcome import Cause, FailureClass
from msgledger.ledger.steps import Start

from .intent_kit import LEASE, T0, Life, doubts


def resent(*required: bool) -> Life:
    """Attempt 1 in doubt, attempt 2 in flight under the same key."""
    life = Life(*required)
    life.start()
    life.lose()
    life.resend()
    return life


class TestAttempts:
    def test_an_older_failure_takes_away_its_own_doubt_and_nothing_else(self) -> None:
        """R2: the newer attempt stays in flight."""
        life = resent()
        state = life.fail("transient", attempt=1)
        assert state.current is not None
        assert (state.status, state.current.number, doubts(state)) == (Status.SENDING, 2, ())

    def test_a_failure_with_another_in_doubt_is_unknown(self) -> None:
        """R2, FAIL-7: a rejection of the second request says nothing of the first."""
        life = resent()
        state = life.fail("conflict", attempt=2)
        assert (state.status, doubts(state), state.refused) == (Status.UNKNOWN, (1,), False)

    def test_the_last_doubt_gone_it_is_pending(self) -> None:
        """R4: pending means that nothing is in doubt."""
        life = resent()
        life.fail("transient", attempt=2)
        state = life.fail("transient", attempt=1)
        assert (state.status, state.doubt) == (Status.PENDING, ())

    def test_a_receipt_ends_every_doubt_about_its_unit(self) -> None:
        """R2: whichever attempt it came from."""
        life = resent()
        life.lose(attempt=2)
        state = life.accept(attempt=1)
        assert (state.status, state.doubt) == (Status.COMMITTING, ())

    def test_an_unknown_outcome_of_an_older_attempt_moves_nothing(self) -> None:
        """R2: it is a decision about the current attempt."""
        life = resent()
        event = e.OutcomeUnknown(at=life.now, by="worker:w1", attempt=1, unit=0, cause=Cause.TIMEOUT)
        state = life.append(event)
        assert state.current is not None
        assert (state.status, state.current.number, doubts(state)) == (Status.SENDING, 2, (1,))

    def test_a_receipt_from_elsewhere_leaves_the_open_attempt_to_its_owner(self) -> None:
        """R3, R9: it ends with the last look, and then the intent commits."""
        life = resent()
        state = life.accept(attempt=1)
        assert (state.status, state.owes) == (Status.SENDING, False)
        assert life.stop(attempt=2).status is Status.COMMITTING
        assert life.finish().status is Status.SENT

    def test_an_attempt_lost_after_its_unit_was_settled_commits(self) -> None:
        """GAP-3: nothing is owed, so nothing is in doubt."""
        life = resent()
        life.accept(attempt=1)
        assert life.take_over().status is Status.COMMITTING

    def test_a_held_outcome_is_not_sent_again_by_a_late_failure(self) -> None:
        """R6, GAP-5: even proof of not sent leaves it to the person that it was held for."""
        life = Life()
        life.start()
        life.lose()
        life.park()
        state = life.fail("transient")
        assert (state.status, state.hold, state.doubt) == (Status.UNKNOWN, "unresolved", ())


class TestUnits:
    def test_one_part_found_leaves_the_rest_pending(self) -> None:
        """R3, UNK-3, BAT-3: and only the rest is sent."""
        life = Life(True, True)
        life.start()
        life.lose(unit=0)
        state = life.check("sent")
        assert (state.status, state.next_unit, sorted(state.receipts)) == (Status.PENDING, 1, [0])

    def test_the_last_part_found_commits(self) -> None:
        """R3, G14: with the ids of all parts."""
        life = Life(True, True)
        life.start()
        life.accept(unit=0)
        life.lose(unit=1)
        life.check("sent")
        assert life.finish().platform_ids == ("p0", "found")

    def test_a_late_receipt_never_leads_to_sending(self) -> None:
        """R3: the rest of the batch is pending, under a claim of its own."""
        life = Life(True, True)
        life.start()
        life.take_over()
        state = life.accept(unit=0)
        assert (state.status, state.current, state.next_unit) == (Status.PENDING, None, 1)

    def test_after_a_failure_only_what_is_missing_is_sent(self) -> None:
        """BAT-3, SC-38, SC-19: of four units that failed at the third, the third and the fourth."""
        life = Life(True, True, True, True)
        life.start()
        life.accept(unit=0)
        life.accept(unit=1)
        life.fail("transient", unit=2)
        state = life.start()
        assert state.current is not None
        assert [one.unit for one in state.current.tries] == [2, 3]

    def test_a_unit_in_doubt_keeps_back_those_behind_it(self) -> None:
        """BAT-7, SC-35: no step sends while it is unsettled."""
        life = Life(True, True)
        life.start()
        life.lose(unit=0)
        assert not isinstance(life.later(LEASE).next(lease_over=True), Start)

    def test_the_second_doubt_is_about_the_second_unit(self) -> None:
        """R3: only the first unit without a receipt can be in doubt."""
        life = Life(True, True)
        life.start()
        life.accept(unit=0)
        state = life.take_over()
        assert [attempt.unit for attempt in state.doubt] == [1]

    def test_a_verdict_about_a_unit_with_a_receipt_changes_nothing(self) -> None:
        """UNK-8, R3: the receipt stands, and the doubt about the next unit, too."""
        life = Life(True, True)
        life.start()
        life.accept(unit=0)
        before = life.lose(unit=1)
        for verdict in ("not_sent", "sent"):
            event = e.OutcomeReconciled(
                at=T0, by="worker:w2", unit=0, attempts=(1,), verdict=verdict, parts=(e.AcceptedPart("zz"),)
            )
            after = life.append(event)
            assert (after.status, after.receipts, after.doubt) == (before.status, before.receipts, before.doubt)


class TestOptionalUnits:
    def test_its_failure_lets_the_next_unit_follow(self) -> None:
        """GAP-7: in the same attempt, whatever the class."""
        for failure in ("transient", "invalid_payload", "auth"):
            life = Life(False, True)
            life.start()
            state = life.fail(failure, unit=0)
            assert (state.status, state.next_unit, state.gaps) == (Status.SENDING, 1, (0,))

    def test_the_commit_lists_it_as_missing(self) -> None:
        """GAP-7, BAT-4: sent, with the index of what was given up."""
        life = Life(False, True)
        life.start()
        life.fail("transient", unit=0)
        life.accept(unit=1)
        life.finish()
        committed = life.events[-1]
        assert isinstance(committed, e.IntentCommitted)
        assert (life.state.status, committed.missing, committed.platform_ids) == (Status.SENT, (0,), ("p1",))

    def test_its_late_failure_does_not_end_the_rest(self) -> None:
        """GAP-7: found by the model: rejected after its owner was taken over, it ended the whole batch."""
        life = Life(False, True)
        before = life.start()
        life.take_over()
        state = life.fail("invalid_payload", unit=0, seen=before)
        assert (state.status, state.refused, state.gaps, state.next_unit) == (Status.PENDING, False, (0,), 1)
        assert life.next() == Start("retry")

    def test_its_late_failure_leaves_a_resend_of_it_alone(self) -> None:
        """R2, G14: the attempt in flight may still get the receipt."""
        life = Life(False, True)
        before = life.start()
        life.lose(unit=0)
        life.resend()
        state = life.fail("invalid_payload", attempt=1, unit=0, seen=before)
        assert (state.gaps, doubts(state)) == ((), ())
        assert sorted(life.accept(attempt=2, unit=0).receipts) == [0]

    def test_the_last_look_does_not_give_it_up(self) -> None:
        """R9, GAP-7: an attempt that sent nothing has not tried it."""
        life = Life(False, True)
        life.start()
        state = life.stop(unit=0)
        assert (state.status, state.gaps, state.next_unit) == (Status.PENDING, (), 0)

    def test_in_doubt_it_does_not_hold_up_a_sent_message(self) -> None:
        """GAP-7: every required part has its receipt."""
        life = Life(True, False)
        life.start()
        life.accept(unit=0)
        assert life.lose(unit=1).status is Status.COMMITTING

    def test_best_effort_delivers_what_is_possible(self) -> None:
        """BAT-4, SC-35: a part that is refused does not stop those behind it."""
        life = Life(True, True, atomicity="best_effort_parts")
        life.start()
        life.fail("invalid_payload", unit=0)
        life.accept(unit=1)
        state = life.finish()
        assert (state.status, state.missing) == (Status.SENT, (0,))

    def test_best_effort_with_nothing_possible_has_failed(self) -> None:
        """BAT-4, SC-34: no receipt, no success."""
        life = Life(True, True, atomicity="best_effort_parts")
        life.start()
        life.fail("invalid_payload", unit=0)
        life.fail("invalid_payload", unit=1)
        state = life.finish()
        assert (state.status, state.reason) == (Status.FAILED, "rejected")


class TestFallbackPlan:
    def plan(self, *required: bool) -> e.BatchPlanned:
        units = tuple(e.PlannedUnit(required=flag) for flag in required)
        return e.BatchPlanned(
            at=T0,
            by="worker:w1",
            plan=1,
            units=units,
            atomicity="best_effort_parts",
            content_mac="m2",
            why=FailureClass.INVALID_PAYLOAD,
        )

    def test_it_is_tried_as_a_plan_of_the_same_intent(self) -> None:
        """FAIL-3, SC-20: what was refused is pending again, under its own key."""
        life = Life()
        life.start()
        life.fail("invalid_payload")
        state = life.append(self.plan(True, True))
        assert (state.status, state.refused, state.plan, len(state.units)) == (Status.PENDING, False, 1, 2)
        assert (state.content_mac, state.atomicity, state.due_at) == ("mac", "best_effort_parts", T0)
        assert life.next() == Start("retry")

    def test_what_the_old_plan_gave_up_is_part_of_the_new_one(self) -> None:
        """G7, BAT-6: an index of the old plan says nothing of the new one."""
        life = Life(False, True)
        life.start()
        life.fail("invalid_payload", unit=0)
        life.fail("invalid_payload", unit=1)
        state = life.append(self.plan(True))
        assert (state.gaps, state.next_unit, state.owes) == ((), 0, True)


class TestBudget:
    def test_what_did_not_leave_costs_nothing(self) -> None:
        """SC-23, SC-12: a refused connection, a wait that was asked for, the last look."""
        for more in ({"bytes_left": False}, {"retry_after_s": 5.0, "failure": "rate_limit"}):
            life = Life()
            life.start()
            assert life.fail(**more).charged == 0
        life.start()
        assert life.stop(attempt=2).charged == 0

    def test_what_left_costs_one(self) -> None:
        """OB-8: counted once, at the claim."""
        life = Life()
        life.start()
        assert life.fail("transient").charged == 1

    def test_a_success_ends_a_row_of_failures(self) -> None:
        """GAP-4: what the wait grows with."""
        life = Life(True, True)
        life.start()
        assert life.fail("transient").failures == 1
        life.start()
        assert life.accept(attempt=2, unit=0).failures == 0


class TestCopies:
    def test_a_marked_copy_is_counted(self) -> None:
        """UNK-7: the receipt says that there is a copy."""
        life = Life(on_unknown="at_least_once")
        life.start()
        life.lose()
        life.start(Start("recovery", "at_least_once", marked=True))
        assert life.accept(attempt=2).copies == 1

    def test_a_second_receipt_with_another_id_is_a_copy(self) -> None:
        """UNK-7, G14: the first ids stay."""
        life = Life(on_unknown="at_least_once")
        life.start()
        life.lose()
        life.start(Start("recovery", "at_least_once", marked=True))
        life.lose(attempt=2)
        life.accept(attempt=1, id="first")
        state = life.accept(attempt=2, id="second")
        assert (state.copies, state.platform_ids) == (1, ("first",))

    def test_a_repeated_copy_is_known(self) -> None:
        """OB-2: a fact is idempotent on attempt, unit and platform id."""
        life = resent()
        life.lose(attempt=2)
        life.accept(attempt=1, id="first")
        life.accept(attempt=2, id="second")
        assert all(known(life.state, event) for event in life.events if isinstance(event, e.UnitAccepted))
