"""From events to state: which kind of stream it is, and the one `evolve` that store, views and model share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from . import life, worker
from .codec import Opaque
from .errors import LedgerError
from .events import Event, IntentRecorded, WorkerStarted
from .intent import OPEN_ENDED, IntentState, Status
from .worker import WorkerState

State = IntentState | WorkerState


class HeldStream(LedgerError):
    """A stream with an event that this version cannot read, or that no stream of ours begins with. It is left alone."""


def evolve(state: State | None, stream: str, event: Event | Opaque, position: int, recorded_at: int) -> State:
    """The state after one more event. `state` is None before the first.

    Raises `HeldStream` where the event cannot be read or cannot come first.
    """
    if isinstance(event, Opaque):
        raise HeldStream(f"stream {stream}: {event.error}")
    if state is None:
        if isinstance(event, IntentRecorded):
            return life.record(stream, event, position, recorded_at)
        if isinstance(event, WorkerStarted):
            return worker.start(stream, event, position, recorded_at)
        raise HeldStream(f"stream {stream} begins with {type(event).__name__}, which begins no stream")
    if isinstance(state, IntentState):
        return life.evolve(state, event, recorded_at)
    return worker.evolve(state, event, recorded_at)


def fold(stream: str, events: Iterable[tuple[Event | Opaque, int, int]]) -> State | None:
    """The state after all of (event, position, recorded_at), in the order of their versions."""
    state: State | None = None
    for event, position, recorded_at in events:
        state = evolve(state, stream, event, position, recorded_at)
    return state


def known(state: State, event: Event) -> bool:
    """Whether a fact is in the ledger already."""
    return isinstance(state, IntentState) and life.known(state, event)


def ended(state: State) -> bool:
    """Whether hardly anything comes after it."""
    return isinstance(state, IntentState) and state.terminal


class Member(NamedTuple):
    """How a stream counts in a partition. Times in UTC milliseconds."""

    position: int
    """Of its first event: its place."""
    holds_until: int = OPEN_ENDED
    in_flight: bool = False


def memberships(state: State) -> tuple[tuple[str, Member | None], ...]:
    """What guards of other streams may ask about this one: its lane, while it is in the way there, and its key."""
    if not isinstance(state, IntentState):
        return ()
    until = state.holds_lane()
    place = None if until is None else Member(state.position, until, state.status is Status.SENDING)
    return (state.lane, place), (state.key, Member(state.position))
