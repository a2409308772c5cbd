"""Every reachable state of the send protocol, searched with the product's own `evolve`, `next_step` and decisions.

Covered: two workers (each idle, with a claim, waiting, or with the answer in hand), two messages of one lane or one of
two units, up to three attempts, crashes, requests and answers that are lost or late, requests applied after their
sender gave up, look-ups that lag, deduplication windows, two clocks, expiry, cancel, graceful stop, a person. The lane
guard, the last look and the rule for facts are modelled as store and dispatcher do them.

Not covered: content, durations other than their order, more than one lane or two of anything, records in mid-search (a
message not yet recorded is one that nobody has claimed), holds for a configuration, and what no rule removes: a pause
between the last look and the bytes, a platform that is not what its channel says, a person's wrong verdict.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from . import invariants
from .mutations import MUTATIONS, SAFE, Mutation, mutated
from .search import Found, search
from .world import World
from .worlds import SMALL

MISTAKES = """
blind redelivery; I/O before the attempt is durable; a claim without head check; a superseded attempt's failure applied
to its successor; lease shorter than the deadline; margin below the clock bound; no deadline check before I/O; a live
owner judged dead; reconcile right after takeover or timeout; look-up lag ignored; the window counted from the last
attempt; the window tested only at the claim; cancel while sending; cancel of a half-sent batch; a late receipt applied
to a failed intent; a late receipt refused by the fence; a lane freed by an unknown intent; a lane freed by a held one
whose request may still land; a 5xx taken as proof of not sent; expiry while sending; a graceful stop that releases an
in-flight request as unsent; a copy without its marker; a 409 on our own key read as rejection
"""

TURNS = {
    # an attempt and its end
    ("claims", "pending", "sending"),
    ("records a receipt", "sending", "sent"),
    ("records a receipt", "sending", "sending"),
    ("records: rejected", "sending", "pending"),
    ("records: rejected", "sending", "failed"),
    ("records: refused", "sending", "failed"),
    ("records: refused", "sending", "sending"),
    ("records: unreachable", "sending", "pending"),
    ("looks and stops", "sending", "pending"),
    ("stops", "sending", "pending"),
    ("stops", "sending", "unknown_after_send"),
    ("gives up", "sending", "unknown_after_send"),
    ("crashes", "sending", "sending"),
    ("takes over", "sending", "unknown_after_send"),
    # what is learned of an attempt that is not the newest, or not any more
    ("records a receipt", "unknown_after_send", "committing"),
    ("records a receipt", "unknown_after_send", "pending"),
    ("records a receipt", "held", "committing"),
    ("records: rejected", "unknown_after_send", "pending"),
    ("records: rejected", "sending", "unknown_after_send"),
    ("looks and stops", "unknown_after_send", "pending"),
    ("looks and stops", "sending", "committing"),
    ("takes over", "sending", "committing"),
    ("commits", "committing", "sent"),
    # an unknown outcome
    ("claims", "unknown_after_send", "sending"),
    ("finds it", "unknown_after_send", "sent"),
    ("finds it", "unknown_after_send", "pending"),
    ("finds it", "held", "sent"),
    ("finds nothing", "unknown_after_send", "unknown_after_send"),
    ("finds nothing", "unknown_after_send", "pending"),
    ("cannot tell", "unknown_after_send", "unknown_after_send"),
    ("holds", "unknown_after_send", "held"),
    # ends, and people
    ("attempts_exhausted", "pending", "failed"),
    ("expired", "pending", "failed"),
    ("cancels", "pending", "cancelled"),
    ("cancels", "pending", "failed"),
    ("a person says", "held", "sent"),
    ("a person says", "held", "pending"),
    ("a person says", "held", "failed"),
    ("a person says", "unknown_after_send", "failed"),
}
"""Turns without which a search would prove little: each must happen somewhere."""


@cache
def searched(world: World) -> Found:
    return search(world)


@pytest.mark.parametrize("name", SMALL)
def test_every_state_keeps_the_guarantees_and_comes_to_rest(name: str) -> None:
    """G3, G4, G5, G6, G7, G14, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10: whatever happens, in whatever order."""
    found = searched(SMALL[name])
    assert found.broken is None, str(found)


@pytest.mark.parametrize("name", SMALL)
def test_every_intent_keeps_its_shape(name: str) -> None:
    """R3, R4: pending means that nothing is in doubt, and only the first unit without a receipt can be."""
    moves = searched(SMALL[name]).searched
    assert moves is not None
    for state in moves.book.states:
        assert invariants.shape(state) is None, f"{invariants.shape(state)}: {state}"


def test_each_interesting_turn_is_taken() -> None:
    """G4, G5: the searches go where it is dangerous."""
    taken = set().union(*(searched(world).turns for world in SMALL.values()))
    assert sorted(TURNS - taken) == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_each_rule_taken_away_and_each_mistake_is_caught(mutation: Mutation) -> None:
    """G3, G4, G5, G6, G7, G14, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10: a search must be able to fail."""
    live = mutation.breaks == "LIVE"
    with mutated(mutation):
        found = search(mutation.mistaken, live=live)
    assert found.broken is not None, f"not caught: {mutation.name}"
    assert found.broken.startswith(mutation.breaks), str(found)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_same_world_holds_without_the_mistake(mutation: Mutation) -> None:
    """G4: what was caught is the mistake, not the world; a channel that says what is not true is one, too."""
    found = searched(replace(mutation.world, declared_settle=None))
    assert found.broken is None, str(found)


@pytest.mark.parametrize("mutation", SAFE, ids=lambda mutation: mutation.name)
def test_what_another_rule_covers_holds_without_it(mutation: Mutation) -> None:
    """R6: an earlier hold is harmless, because the lane is kept to the lease end."""
    with mutated(mutation):
        found = search(mutation.mistaken)
    assert found.broken is None, str(found)


def test_no_rule_and_no_known_mistake_is_left_out() -> None:
    """R1, R2, R3, R4, R5, R6, R7, R8, R9, R10."""
    rules = {rule for mutation in MUTATIONS for rule in mutation.rules.split()}
    assert rules == {f"R{number}" for number in range(1, 11)}
    named = {" ".join(mistake.split()) for mistake in MISTAKES.split(";")}
    assert not named - {mutation.name for mutation in MUTATIONS}
