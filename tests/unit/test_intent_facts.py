"""Facts come late, twice and in any order: what must not depend on that, over random lives of an intent."""

from __future__ import annotations

from itertools import permutations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgledger.ledger import codec, fold
from msgledger.ledger import events as e
from msgledger.ledger.errors import NotPossible
from msgledger.ledger.intent import IntentState, Status
from msgledger.ledger.outcome import FailureClass
from msgledger.ledger.steps import Start

from .intent_kit import STREAM, T0, Life, doubts

FACTS = (e.UnitAccepted, e.AttemptFailed)
ATTEMPTS = st.integers(1, 4)
UNITS = st.integers(0, 2)
MOVES = st.one_of(
    st.tuples(st.just("accept"), ATTEMPTS, UNITS, st.sampled_from(["a", "b"])),
    st.tuples(st.just("fail"), ATTEMPTS, UNITS, st.sampled_from(list(FailureClass))),
    st.tuples(st.just("stop"), ATTEMPTS, UNITS),
    st.tuples(st.just("start")),
    st.tuples(st.just("resend")),
    st.tuples(st.just("copy")),
    st.tuples(st.just("lose"), UNITS),
    st.tuples(st.just("take_over")),
    st.tuples(st.just("check"), st.sampled_from(["sent", "not_sent", "unresolved"])),
    st.tuples(st.just("park")),
    st.tuples(st.just("say"), st.sampled_from(["sent", "not-sent", "discard"])),
    st.tuples(st.just("cancel")),
    st.tuples(st.just("finish")),
    st.tuples(st.just("later"), st.integers(0, 100_000)),
)
SHAPES = st.sampled_from([(True,), (True, True), (False, True), (True, False), (True, True, True)])


def move(life: Life, name: str, *args: object) -> None:
    """One move, where a gateway could make it: decisions at the state that stands, facts of attempts that were made."""
    state = life.state
    match name:
        case "accept" | "fail" | "stop":
            attempt, unit, *rest = args
            if attempt > state.attempts or unit >= len(state.units):
                return
            before = state
            if name == "accept":
                life.accept(attempt, unit, id=rest[0])
            elif name == "fail":
                life.fail(rest[0], attempt=attempt, unit=unit)
            else:
                life.stop(attempt, unit)
            if fold.known(before, life.events[-1]):  # the store drops it
                life.events.pop()
                life.state = before
        case "start":
            if state.status is Status.PENDING and not state.refused:
                life.start()
        case "resend" | "copy":
            if state.status is Status.UNKNOWN and state.hold is None:
                life.start(
                    Start("recovery", "window") if name == "resend" else Start("recovery", "at_least_once", True)
                )
        case "lose":
            if state.current is not None and state.next_unit is not None:
                life.lose(state.current.number, state.next_unit)
        case "take_over":
            if state.current is not None:
                life.take_over()
        case "check" | "park":
            if state.status is Status.UNKNOWN and state.doubt:
                life.check(*args) if name == "check" else life.park()
        case "say" | "cancel":
            try:
                life.say(*args) if name == "say" else life.cancel()
            except NotPossible:
                return
        case "finish":
            if not state.terminal and (state.status is Status.COMMITTING or state.refused):
                life.finish()
        case _:
            life.later(*args)


@st.composite
def lives(draw: st.DrawFn) -> tuple[Life, list[IntentState]]:
    """An intent, and its state before each of its events."""
    life = Life(*draw(SHAPES), atomicity=draw(st.sampled_from(["all_or_retry_remaining", "best_effort_parts"])))
    states: list[IntentState] = []
    life.start()
    for step in draw(st.lists(MOVES, max_size=25)):
        before, count = life.state, len(life.events)
        move(life, *step)
        if len(life.events) > count:
            states.append(before)
    return life, [*states, life.state]


@given(lives())
@settings(max_examples=300, deadline=None)
def test_no_event_changes_how_it_ended(lived: tuple[Life, list[IntentState]]) -> None:
    """G5, OB-11: from the first terminal state on."""
    _, states = lived
    ends = [state.status for state in states if state.terminal]
    assert len(set(ends)) <= 1
    assert all(state.terminal for state in states[len(states) - len(ends) :])


@given(lives())
@settings(max_examples=300, deadline=None)
def test_a_fact_never_leads_to_sending_and_moves_only_its_own(lived: tuple[Life, list[IntentState]]) -> None:
    """R2, R3: a failure ends its own doubt, a receipt the doubt about its unit, and neither starts anything."""
    life, states = lived
    for before, after, event in zip(states[:-1], states[1:], life.events[2:], strict=True):
        if not isinstance(event, FACTS):
            continue
        if after.status is Status.SENDING:
            assert before.status is Status.SENDING
            assert before.current == after.current
        gone = {attempt for attempt in before.doubt if attempt not in after.doubt}
        assert set(after.doubt) <= set(before.doubt)
        if isinstance(event, e.AttemptFailed):
            assert {attempt.number for attempt in gone} <= {event.attempt}
        else:
            assert {attempt.unit for attempt in gone} <= {event.unit}


@given(lives())
@settings(max_examples=300, deadline=None)
def test_pending_means_that_nothing_is_in_doubt(lived: tuple[Life, list[IntentState]]) -> None:
    """R4, R3: and only the first unit without a receipt can be."""
    for state in lived[1]:
        assert (state.current is not None) == (state.status is Status.SENDING)
        if state.status is Status.PENDING:
            assert state.doubt == ()
        if not state.terminal:
            assert {attempt.unit for attempt in state.doubt} <= {state.next_unit}
        assert 0 <= state.charged <= state.attempts


@given(lives())
@settings(max_examples=300, deadline=None)
def test_a_receipt_is_never_lost(lived: tuple[Life, list[IntentState]]) -> None:
    """G14, UNK-8: what has a receipt keeps it, under the id that came first."""
    for before, after in zip(lived[1], lived[1][1:], strict=False):
        for unit, got in before.receipts.items():
            assert after.receipts[unit].parts == got.parts


@given(lives())
@settings(max_examples=300, deadline=None)
def test_a_fact_that_comes_again_is_known(lived: tuple[Life, list[IntentState]]) -> None:
    """OB-2, R2: at whatever head, so that the store drops it."""
    life, _ = lived
    for event in life.events:
        if isinstance(event, FACTS):
            assert fold.known(life.state, event), event


@given(lives())
@settings(max_examples=300, deadline=None)
def test_what_is_read_back_folds_to_the_same(lived: tuple[Life, list[IntentState]]) -> None:
    """G9, OB-2: JSON of every event, with and without fields that a later version adds."""
    life, _ = lived
    stored = [codec.encode(event) for event in life.events]
    later = [(topic, body[:-1] + b',"zz_later":{"a":[1]}}') for topic, body in stored]
    for bodies in (stored, later):
        events = [codec.decode(topic, body) for topic, body in bodies]
        assert events == life.events
    moments = [(event, 7, T0) for event in life.events]
    read = [(codec.decode(*codec.encode(event)), 7, T0) for event in life.events]
    assert fold.fold(STREAM, read) == fold.fold(STREAM, moments)


UNORDERED = st.lists(
    st.one_of(
        st.tuples(st.just("accept"), st.integers(1, 3), st.integers(0, 1), st.just("a")),
        st.tuples(st.just("fail"), st.integers(1, 3), st.just(0), st.just(FailureClass.TRANSIENT)),
    ),
    min_size=2,
    max_size=4,
    unique_by=lambda fact: (fact[0], *fact[1:3]),
)


def settled(facts: tuple[tuple[object, ...], ...]) -> tuple[object, ...]:
    life = Life(True, True)
    life.start()
    for attempt in (1, 2, 3):
        life.lose(attempt, 0)
        if attempt < 3:
            life.resend()
    for fact in facts:
        move(life, *fact)
    state = life.state
    return state.status, doubts(state), sorted(state.receipts), state.next_unit, state.current


@given(UNORDERED)
@settings(max_examples=150, deadline=None)
def test_the_order_of_late_facts_does_not_matter(facts: list[tuple[object, ...]]) -> None:
    """R2, G5: three attempts in doubt, and each order of what is learned of them leads to the same."""
    ways = {msgspec.json.encode(settled(way)) for way in permutations(facts)}
    assert len(ways) == 1, ways
