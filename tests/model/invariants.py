"""What must hold in every state that can be reached, in the words of docs/behaviour/guarantees.md.

What one move alone breaks (a copy, an order, a superseded owner) is told by `moves.py` with that move.
"""

from __future__ import annotations

from msgledger.ledger.intent import IntentState, Status

from .moves import ALL, Moves, State


def broken(moves: Moves, s: State) -> str | None:
    """The first guarantee that this state breaks."""
    units = moves.world.units
    states = [moves.book.states[n] for n in s.intents]
    if sum(state.status is Status.SENDING for state in states) > 1:
        return "G6 two in flight in one lane"
    for m, state in enumerate(states):
        if state.status in (Status.PENDING, Status.SENDING, Status.UNKNOWN) or s.word[m] == ALL:
            continue
        visible = [shown.copies > 0 for shown in s.platform[m * units : (m + 1) * units]]
        if state.status is Status.CANCELLED and any(visible):
            return "G7 it is cancelled, yet visible"
        if state.status is Status.FAILED and state.reason != "discarded":
            for unit in range(units):
                if visible[unit] and unit not in state.receipts:
                    return f"G7 it ended as {state.reason}, yet a part without a receipt is visible"
        if state.status in (Status.SENT, Status.COMMITTING):
            for unit in range(units):
                if unit in state.receipts and not visible[unit]:
                    return "G14 a receipt for what is not visible"
                if unit in state.gaps and unit not in state.receipts and visible[unit]:
                    return "G7 a part is given up, yet visible"
                if unit not in state.receipts and not state.droppable(unit):
                    return "G14 it is sent without a receipt of each required part"
    return None


def overwritten(before: IntentState, after: IntentState) -> str | None:
    """Whether a move changed what had ended."""
    if before.terminal and before.status is not after.status:
        return f"G5 {before.status.value} was overwritten by {after.status.value}"
    return None


def stage(state: IntentState) -> str:
    """How an intent stands, in one word."""
    return "held" if state.hold is not None else state.status.value


def settled(moves: Moves, s: State) -> bool:
    """Every message has ended or waits for a person; or the search looks no further, and the rest of the lane waits."""
    for n in s.intents:
        state = moves.book.states[n]
        if beyond(moves, state):
            return True
        held = state.status is Status.UNKNOWN and state.hold is not None
        if not (state.terminal or held):
            return False
    return True


def beyond(moves: Moves, state: IntentState) -> bool:
    """Attempts that cost nothing could go on for ever; the search stops at a number."""
    if state.attempts < moves.world.attempts[state.position] or state.charged >= state.policy.max_attempts:
        return False
    return state.status in (Status.PENDING, Status.UNKNOWN)


def shape(state: IntentState) -> str | None:
    """What `evolve` must keep of every intent, whatever it met."""
    if (state.current is not None) != (state.status is Status.SENDING):
        return "an attempt is in flight in `sending`, and only there"
    if state.status is Status.PENDING and state.doubt:
        return "pending means that nothing is in doubt"
    if not state.terminal and any(attempt.unit != state.next_unit for attempt in state.doubt):
        return "only the first unit without a receipt can be in doubt"
    if state.status is Status.UNKNOWN and not state.owes:
        return "an unknown outcome is about something that is owed"
    if state.status is Status.UNKNOWN and not state.doubt and state.hold is None:
        return "an unknown outcome has an attempt in doubt, or is held"
    if not 0 <= state.charged <= state.attempts:
        return "no more attempts are charged than were made"
    return None
