"""The session: one conversation under one key, its state and how events change it. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from . import inbound_events as i
from .events import Event
from .source import ChatKind


class SessionState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    id: str
    position: int
    head: int
    recorded_at: int
    updated_at: int
    key: str
    session_id: str
    shown: str
    channel: str
    kind: ChatKind
    profile: str | None = None
    since: int
    """Position of the event that gave the present `session_id`: its history begins there."""
    begun_at: int
    """UTC milliseconds of that event."""
    earlier: tuple[tuple[str, int], ...] = ()
    """Session ids before the present one, each with the position that it began at, the oldest first."""
    reason: i.ResetReason | None = None
    """Why the present `session_id` began; None for the first."""
    suspended: str | None = None
    """Why, while it is."""
    resume: str | None = None
    """The interrupted inbound message, while a resume is pending."""
    resume_at: int | None = None
    """When it was marked (UTC ms)."""
    interrupted: int = 0
    """Marks in a row without a turn that came to its end."""


def start(stream: str, event: i.SessionOpened, position: int, recorded_at: int) -> SessionState:
    return SessionState(
        id=stream,
        position=position,
        head=0,
        recorded_at=recorded_at,
        updated_at=recorded_at,
        key=event.key,
        session_id=event.session_id,
        shown=event.shown,
        channel=event.channel,
        kind=event.kind,
        profile=event.profile,
        since=position,
        begun_at=event.at,
    )


def evolve(state: SessionState, event: Event, position: int, recorded_at: int) -> SessionState:
    state = replace(state, head=state.head + 1, updated_at=recorded_at)
    match event:
        case i.SessionRotated():
            return replace(
                state,
                session_id=event.session_id,
                since=position,
                begun_at=event.at,
                earlier=(*state.earlier, (state.session_id, state.since)),
                reason=event.reason,
                suspended=None,
                resume=None,
                resume_at=None,
                interrupted=0,
            )
        case i.SessionSuspended():
            return replace(state, suspended=event.reason, resume=None, resume_at=None)
        case i.SessionResumed():
            return replace(state, suspended=None, interrupted=0)
        case i.ResumeMarked():
            return replace(state, resume=event.inbound, resume_at=event.at, interrupted=state.interrupted + 1)
        case i.ResumeCleared() if event.inbound == state.resume:
            return replace(state, resume=None, resume_at=None, interrupted=0)
        case _:
            return state
