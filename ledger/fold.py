"""From events to state: which kind of stream it is, and the one `evolve` that store, views and model share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from . import cursor, inbound, life, session, worker
from .codec import Opaque
from .cursor import CursorState
from .errors import LedgerError
from .events import Event, IntentRecorded, WorkerStarted
from .inbound import InboundState, InboundStatus
from .inbound_events import CursorAdvanced, InboundDropped, InboundRecorded, SessionOpened
from .intent import OPEN_ENDED, IntentState, Status
from .session import SessionState
from .worker import WorkerState

State = IntentState | InboundState | SessionState | CursorState | WorkerState


class HeldStream(LedgerError):
    """A stream with an event that this version cannot read, or that no stream of ours begins with. It is left alone."""


def evolve(state: State | None, stream: str, event: Event | Opaque, position: int, recorded_at: int) -> State:
    """The state after one more event. `state` is None before the first.

    Raises `HeldStream` where the event cannot be read or cannot come first.
    """
    if isinstance(event, Opaque):
        raise HeldStream(f"stream {stream}: {event.error}")
    if state is None:
        return _begin(stream, event, position, recorded_at)
    match state:
        case IntentState():
            return life.evolve(state, event, recorded_at)
        case InboundState():
            return inbound.evolve(state, event, recorded_at)
        case SessionState():
            return session.evolve(state, event, position, recorded_at)
        case CursorState():
            return cursor.evolve(state, event, recorded_at)
        case WorkerState():
            return worker.evolve(state, event, recorded_at)


def _begin(stream: str, event: Event, position: int, recorded_at: int) -> State:
    match event:
        case IntentRecorded():
            return life.record(stream, event, position, recorded_at)
        case InboundRecorded():
            return inbound.record(stream, event, position, recorded_at)
        case InboundDropped():
            return inbound.drop(stream, event, position, recorded_at)
        case SessionOpened():
            return session.start(stream, event, position, recorded_at)
        case CursorAdvanced():
            return cursor.start(stream, event, position, recorded_at)
        case WorkerStarted():
            return worker.start(stream, event, position, recorded_at)
        case _:
            raise HeldStream(f"stream {stream} begins with {type(event).__name__}, which begins no stream")


def fold(stream: str, events: Iterable[tuple[Event | Opaque, int, int]]) -> State | None:
    """The state after all of (event, position, recorded_at), in the order of their versions."""
    state: State | None = None
    for event, position, recorded_at in events:
        state = evolve(state, stream, event, position, recorded_at)
    return state


def known(state: State, event: Event) -> bool:
    """Whether a fact is in the ledger already."""
    match state:
        case IntentState():
            return life.known(state, event)
        case InboundState():
            return inbound.known(state, event)
        case SessionState():
            return session.known(state, event)
        case _:
            return False


def ended(state: State) -> bool:
    """Whether hardly anything comes after it."""
    match state:
        case IntentState():
            return state.terminal
        case InboundState():
            return not state.open
        case _:
            return False


class Member(NamedTuple):
    """How a stream counts in a partition. Times in UTC milliseconds."""

    position: int
    """Of its first event: its place."""
    holds_until: int = OPEN_ENDED
    in_flight: bool = False


def memberships(state: State) -> tuple[tuple[str, Member | None], ...]:
    """What guards of other streams may ask about this one: its lane, while it is in the way there, and its key."""
    match state:
        case IntentState():
            until = state.holds_lane()
            place = None if until is None else Member(state.position, until, state.status is Status.SENDING)
            return (state.lane, place), (state.key, Member(state.position))
        case InboundState():
            running = state.status is InboundStatus.RUNNING
            turn = Member(state.position, in_flight=running) if state.holds_lane else None
            return (turns_of(state.lane), turn), (state.event_key, Member(state.position))
        case SessionState() | CursorState():
            return ((named(state.key), Member(state.position)),)
        case WorkerState():
            return ()


def turns_of(lane: str) -> str:
    """The partition of the turns of a lane: they wait for one another, and not for what is sent there."""
    return f"turns {lane}"


def named(key: str) -> str:
    """The partition of the one session or cursor with that key."""
    return f"named {key}"
