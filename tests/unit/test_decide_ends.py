"""Looking up, holding, cancelling, resolving, ending: the events that they lead to, and what they refuse."""

from __future__ import annotations

import msgspec
import pytest
from msgledger.ledger import decide
from msgledger.ledger import events as e
from msgledger.ledger.errors import NotPossible
from msgledger.ledger.intent import IntentState, Status
from msgledger.ledger.limits import CHECK_BACKOFF_MS, CHECKS_MAX, PROBE_WAIT_MAX_MS
from msgledger.ledger.message import ReceiptPart
from msgledger.ledger.outcome import Accepted, Cause, NotDispatched, Rejected, Unknown
from msgledger.ledger.steps import Check, Start

from .intent_kit import LEASE, T0, TERMS, Life, doubts, tries


def unknown() -> Life:
    life = Life()
    life.start()
    life.lose()
    return life


def verdict(life: Life) -> e.OutcomeReconciled:
    event = life.events[-1]
    assert isinstance(event, e.OutcomeReconciled)
    return event


class TestClaim:
    def test_it_carries_what_a_lease_and_a_window_need(self) -> None:
        """R1, R5, UNK-7: durations, credential, licence, marker, and a digest for each unit."""
        life = Life()
        step = Start("recovery", "at_least_once", marked=True)
        event = decide.start(life.state, step, TERMS, at=T0, boot_ms=42, owner="w1", tries=tries(0))
        assert (event.attempt, event.owner, event.boot_ms, event.credential) == (1, "w1", 42, "c1")
        assert (event.deadline_ms, event.margin_ms) == (30_000, 20_000)
        assert (event.why, event.licence, event.marked) == ("recovery", "at_least_once", True)
        assert event.units == tries(0)

    def test_attempts_are_numbered_without_a_gap(self) -> None:
        """SC-26, R2: facts name them."""
        life = Life()
        life.start()
        life.fail("transient")
        assert life.start().attempts == 2

    def test_the_same_unit_has_the_same_key_in_every_attempt(self) -> None:
        """BAT-1, SC-39: what one attempt was told, the next one finds in the doubt."""
        life = unknown()
        assert [attempt.tries for attempt in life.state.doubt] == [tries(0)]


class TestReceipt:
    def test_ids_are_facts_and_details_are_content(self) -> None:
        """RCP-2, G14: every part of a unit that became several messages."""
        parts = (ReceiptPart(0, "a"), ReceiptPart(1, "b", url="https://x"))
        event = decide.accepted(1, 0, "text", Accepted(parts=parts), at=T0, by="worker:w1")
        assert event.parts == (e.AcceptedPart("a"), e.AcceptedPart("b"))
        assert event.content is not None
        assert event.content.parts == parts

    def test_a_plain_receipt_has_no_content(self) -> None:
        """RCP-1: one id, one part."""
        event = decide.accepted(1, 0, "media", Accepted("a"), at=T0, by="worker:w1")
        assert (event.parts, event.content) == ((e.AcceptedPart("a", "media"),), None)

    def test_the_commit_has_every_id_in_order(self) -> None:
        """G14, RCP-3: in the order of the units, not of the answers."""
        life = Life(True, True)
        life.start()
        life.take_over()
        life.accept(unit=1)
        life.accept(unit=0)
        event = decide.finish(life.state, at=T0, by="worker:w1")
        assert isinstance(event, e.IntentCommitted)
        assert (event.platform_ids, event.missing) == (("p0", "p1"), ())


class TestUnknown:
    def test_a_lost_owner_is_looked_after_at_once(self) -> None:
        """REC-6, SC-11: its outcome is already older than a live one's."""
        life = Life()
        life.start()
        assert life.later(5).take_over().due_at == life.now

    def test_a_live_one_waits_a_little(self) -> None:
        """SC-10: the platform may be busy."""
        assert unknown().state.due_at == T0 + 1_000

    def test_there_must_be_an_attempt_to_take_over(self) -> None:
        """R2, GAP-2: not of a pending intent."""
        with pytest.raises(NotPossible, match="no attempt"):
            decide.taken_over(Life().state, at=T0, by="worker:w2")

    def test_a_cause_is_kept(self) -> None:
        """FAIL-9, GAP-10: success without an id is one."""
        life = Life()
        state = life.start()
        event = decide.unknown(state, 1, 0, Unknown(Cause.NO_IDENTITY), at=T0, by="worker:w1", chance=0.0)
        assert event.cause is Cause.NO_IDENTITY


class TestLookUp:
    """GAP-1: three answers, and what each is worth."""

    def test_sent_carries_the_receipt_and_the_attempts_it_speaks_of(self) -> None:
        """UNK-3, R3: whenever it is found."""
        life = unknown()
        state = life.check("sent", conclusive=False)
        event = verdict(life)
        assert (event.verdict, event.unit, event.attempts, event.parts) == ("sent", 0, (1,), (e.AcceptedPart("found"),))
        assert state.status is Status.COMMITTING

    def test_absence_counts_only_when_it_is_conclusive(self) -> None:
        """R1, UNK-4: else it is unresolved."""
        life = unknown()
        life.later(LEASE).check("not_sent", conclusive=False)
        assert verdict(life).verdict == "unresolved"
        life.check("not_sent", conclusive=True)
        assert (verdict(life).verdict, life.state.status) == ("not_sent", Status.PENDING)

    def test_absence_before_the_lease_end_costs_no_check(self) -> None:
        """R1: and the next look is at the lease end."""
        life = unknown()
        state = life.check("not_sent", conclusive=False)
        assert (verdict(life).counted, state.checks, state.due_at) == (False, 0, T0 + LEASE)

    def test_one_that_raised_is_asked_again(self) -> None:
        """UNK-6, UNK-5: unresolved, counted, at growing intervals."""
        life = unknown()
        life.later(LEASE)
        for number in range(CHECKS_MAX - 1):
            state = life.check("unresolved", retryable=True)
            assert (state.checks, state.due_at) == (number + 1, life.now + CHECK_BACKOFF_MS[number])
        assert life.check("unresolved").due_at is None

    def test_one_that_cannot_know_is_not_asked_again(self) -> None:
        """GAP-1, GAP-5: where asking again is of no use."""
        life = unknown()
        state = life.later(LEASE).check("unresolved", retryable=False)
        assert (state.status, state.due_at) == (Status.UNKNOWN, None)

    def test_no_verdict_of_a_look_up_reopens_what_is_held(self) -> None:
        """R6: it may find it; it may not have it sent again."""
        life = unknown()
        life.park()
        state = life.later(LEASE).check("not_sent", conclusive=True)
        assert (state.status, state.hold) == (Status.UNKNOWN, "unresolved")

    def test_a_hold_keeps_the_time_of_the_next_look(self) -> None:
        """R6: the lane goes on, and the look-ups, too."""
        life = unknown()
        due = life.later(LEASE).check("unresolved").due_at
        assert life.park().due_at == due
        assert verdict(life).counted is False


class TestCancel:
    def test_only_what_is_pending_without_doubt(self) -> None:
        """GAP-6, R4: in flight, unknown or ended it is refused, with what to do instead."""
        life = Life()
        life.start()
        with pytest.raises(NotPossible, match="in flight"):
            life.cancel()
        life.lose()
        with pytest.raises(NotPossible, match="may have been sent"):
            life.cancel()
        life.accept()
        with pytest.raises(NotPossible, match="too late"):
            life.cancel()

    def test_between_two_attempts_it_is_a_cancel(self) -> None:
        """GAP-6: with proof that the first sent nothing."""
        life = Life()
        life.start()
        life.fail("transient")
        assert life.cancel().status is Status.CANCELLED

    def test_after_a_part_it_is_a_discard(self) -> None:
        """GAP-6, SC-38: with the partial receipt."""
        life = Life(True, True)
        life.start()
        life.accept(unit=0)
        life.fail("transient", unit=1)
        state = life.cancel()
        assert (state.status, state.reason, state.platform_ids) == (Status.FAILED, "discarded", ("p0",))


class TestPerson:
    def test_sent_settles_the_unit(self) -> None:
        """G4, UNK-3: with the id that the person gives."""
        life = unknown()
        life.say("sent", "p7")
        state = life.finish()
        assert (state.status, state.platform_ids) == (Status.SENT, ("p7",))
        assert verdict_of(life).reason == "I looked"

    def test_not_sent_reopens_what_is_held(self) -> None:
        """R6, G4: a recorded decision, with a reason."""
        life = unknown()
        life.park()
        state = life.say("not-sent")
        assert (state.status, state.hold, state.reopened, doubts(state)) == (Status.PENDING, None, True, ())

    def test_the_word_is_good_for_one_attempt(self) -> None:
        """G4: the next unknown outcome needs a new one."""
        life = unknown()
        life.say("not-sent")
        assert life.start(Start("operator", "operator")).reopened is False

    def test_a_word_on_anything_else_is_refused(self) -> None:
        """R2: only an unknown outcome can be resolved."""
        life = Life()
        for step in ("start", "accept"):
            with pytest.raises(NotPossible, match="unknown outcome"):
                life.say("not-sent")
            getattr(life, step)()

    def test_another_word_is_refused(self) -> None:
        """G4: it is not guessed what was meant."""
        with pytest.raises(NotPossible, match="no verdict"):
            unknown().say("maybe")


def verdict_of(life: Life) -> e.OutcomeReconciled:
    return next(event for event in life.events if isinstance(event, e.OutcomeReconciled))


class TestEnds:
    @pytest.mark.parametrize("reason", ["expired", "attempts_exhausted", "rejected", "incomplete"])
    def test_no_end_while_something_is_in_doubt(self, reason: str) -> None:
        """R4, G7: in flight or unknown, it may be visible."""
        life = Life()
        life.start()
        for _ in range(2):
            with pytest.raises(NotPossible, match="cannot end"):
                life.end(reason)
            if life.state.status is Status.SENDING:
                life.lose()

    def test_nothing_ends_that_may_go_on(self) -> None:
        """G7: only what was refused or settled has an end that is due."""
        life = Life()
        assert finish(life.state) is None
        assert finish(life.start()) is None
        assert finish(life.fail("transient")) is None
        assert finish(unknown().state) is None

    def test_each_end_says_why(self) -> None:
        """G7, OB-8: class and code of the failure behind it."""
        life = Life()
        life.start()
        life.fail("not_found", code="chat_gone")
        event = finish(life.state)
        assert isinstance(event, e.IntentFailed)
        assert (event.reason, event.failure, event.code) == ("rejected", "not_found", "chat_gone")


def finish(state: IntentState) -> e.Event | None:
    return decide.finish(state, at=T0, by="worker:w1")


def test_a_conclusive_look_speaks_of_all_that_is_in_doubt() -> None:
    """R3: each attempt by its number."""
    life = unknown()
    life.resend()
    life.lose(attempt=2)
    event = decide.checked(life.state, Check(0, True), "not_sent", at=T0, by="worker:w2", evidence={})
    assert event.attempts == (1, 2)


class TestWhatTheChannelSaidIsKept:
    """SC-41, REC-8: status, code, request id, duration and text, whatever is decided."""

    def test_of_a_receipt(self) -> None:
        """UNK-8: also that the platform knew the key."""
        outcome = Accepted("a", duplicate=True, status=200, request_id="r", sent_at=5, raw={"ok": True})
        event = decide.accepted(1, 0, "text", outcome, at=T0, by="worker:w1", took_ms=9)
        assert (event.duplicate, event.status, event.request_id, event.sent_at, event.took_ms) == (True, 200, "r", 5, 9)
        assert event.content == e.AcceptedContent(raw={"ok": True})

    def test_of_a_failure(self) -> None:
        """FAIL-11: the proof comes with it."""
        life = Life()
        state = life.start()
        outcome = Rejected("transient", "busy", status=429, request_id="r")
        event = decide.failed(state, 1, 0, outcome, at=T0, by="worker:w1", terms=TERMS, chance=0.5, took_ms=9)
        assert (event.plan, event.status, event.request_id, event.took_ms) == (0, 429, "r", 9)
        assert event.content == e.ErrorContent(detail="busy")
        assert life.failure(1, 0, Rejected("transient")).content is None

    def test_of_silence(self) -> None:
        """FAIL-9: what there was of an answer."""
        outcome = Unknown(Cause.SERVER_ERROR, "oops", status=502, request_id="r")
        event = decide.unknown(Life().start(), 1, 0, outcome, at=T0, by="worker:w1", chance=0.5, took_ms=9)
        assert (event.status, event.request_id, event.took_ms) == (502, "r", 9)
        assert event.content == e.ErrorContent(detail="oops")

    def test_of_a_look_up(self) -> None:
        """GAP-1, UNK-5: the evidence of each of the three answers."""
        state, seen = unknown().state, {"method": "by_key", "pages": 2}
        receipt = decide.accepted(1, 0, "text", Accepted("a", sent_at=5, raw={"k": 1}), at=T0, by="worker:w2")
        for found, word, conclusive in (
            (receipt, "sent", False),
            (None, "not_sent", True),
            (None, "unresolved", False),
        ):
            event = decide.checked(
                state, Check(0, conclusive), word, at=T0 + LEASE, by="worker:w2", evidence=seen, found=found
            )
            assert (event.verdict, event.evidence) == (word, seen)
            if found is not None:
                assert (event.sent_at, event.content) == (5, receipt.content)

    def test_of_a_person(self) -> None:
        """G4: the reason stands with the verdict, whatever it is."""
        for word in ("sent", "not-sent"):
            life = unknown()
            life.say(word, "p7")
            assert (verdict_of(life).reason, verdict_of(life).evidence) == ("I looked", {"method": "person"})
        life = unknown()
        life.say("discard")
        event = life.events[-1]
        assert isinstance(event, e.IntentFailed)
        assert event.note == "I looked"

    def test_of_a_probe(self) -> None:
        """REC-11: what did not leave is tried again soon, however often that was so before."""
        state = msgspec.structs.replace(Life().start(), failures=9)
        event = decide.failed(state, 1, 0, NotDispatched(), at=T0, by="worker:w1", terms=TERMS, chance=0.999)
        assert event.next_attempt_at is not None
        assert event.next_attempt_at - T0 <= PROBE_WAIT_MAX_MS
