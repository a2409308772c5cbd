"""A decision applied to the newest state: read, decide, append; read and decide again where somebody was first."""

from __future__ import annotations

from collections.abc import Callable

import apsw

from ..dossier import Dossier, compile_dossier
from ..errors import Conflict, NoSuchIntent, NoSuchStream, StaleHead
from ..events import Event
from ..fold import HeldStream, State
from ..intent import IntentState
from ..limits import DECIDE_TRIES_MAX
from .append import Append
from .history import events_of
from .store import Store

Decision = Callable[[IntentState], Event]


def dossier_of(cursor: apsw.Cursor, stream: str) -> Dossier:
    """One intent with its content. Raises `NoSuchIntent`, or `HeldStream` where it cannot be read."""
    found = events_of(cursor, stream)
    if not found:
        raise NoSuchIntent(f"no intent {stream}")
    return compile_dossier(stream, ((one.event, one.position, one.recorded_at) for one in found))


async def apply(store: Store, stream: str, decision: Decision) -> IntentState:
    """The state after the decision's event. What the decision raises gets through."""
    for _ in range(DECIDE_TRIES_MAX):
        state = (await store.read(dossier_of, stream)).state
        [result] = await store.append(Append(stream, (decision(state),), expected=state.head))
        if not isinstance(result, Conflict):
            return _intent(result.state)
    raise StaleHead(f"intent {stream} changes faster than anyone can decide about it")


def apply_sync(store: Store, stream: str, decision: Decision) -> IntentState:
    """The same, blocking."""
    for _ in range(DECIDE_TRIES_MAX):
        state = store.read_sync(dossier_of, stream).state
        [result] = store.append_sync(Append(stream, (decision(state),), expected=state.head))
        if not isinstance(result, Conflict):
            return _intent(result.state)
    raise StaleHead(f"intent {stream} changes faster than anyone can decide about it")


def change_sync(store: Store, stream: str, decision: Callable[[State], Event]) -> State:
    """A decision about a stream of any kind, blocking. What the decision raises gets through."""
    for _ in range(DECIDE_TRIES_MAX):
        state = store.state_of(stream)
        if state is None:
            raise NoSuchStream(f"no stream {stream}")
        [result] = store.append_sync(Append(stream, (decision(state),), expected=state.head))
        if not isinstance(result, Conflict):
            return result.state
    raise StaleHead(f"stream {stream} changes faster than anyone can decide about it")


def _intent(state: object) -> IntentState:
    if not isinstance(state, IntentState):
        raise HeldStream("the stream is no intent")
    return state
