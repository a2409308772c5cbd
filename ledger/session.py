"""The session: one conversation under one key, its state, how events change it, and when it begins anew. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from . import inbound_events as i
from .errors import NotPossible
from .events import Event
from .limits import FRESHNESS_S, RESUMES_MAX
from .message import Target
from .source import ChatKind, SessionSource

RESETS: Final = ("none", "idle", "daily", "both")


class SessionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway says of its sessions. A wrong value is refused when it opens."""

    group_sessions_per_user: bool = True
    """In a room each participant has a session of its own."""
    thread_sessions_per_user: bool = False
    """In a thread too; else a thread is shared."""
    freshness_s: float | None = None
    """How long after its last message a conversation is simply continued; zero or less: always. None: what
    MSGLEDGER_AUTO_CONTINUE_FRESHNESS says, else an hour."""
    reset: Literal["none", "idle", "daily", "both"] = "none"
    idle_minutes: float = 1_440.0
    at_hour: int = 4
    timezone: str = "UTC"
    """The zone of `at_hour`, as in `Europe/Berlin`."""
    profile: str | None = None
    """Which of several agents answers: part of every key. `main` is what none is called."""
    home: Mapping[str, Target] = {}
    """Channel to the place where its unasked messages go."""

    def sourced(self, source: SessionSource) -> SessionSource:
        """The source with the gateway's profile, where it has none of its own."""
        return source if source.profile is not None else replace(source, profile=self.profile)


class Span(NamedTuple):
    """A session id, where its conversation begins, and why it does."""

    session_id: str
    since: int
    """Position of the event that gave it."""
    reason: i.ResetReason | None
    """None for the first of a key."""


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
    earlier: tuple[Span, ...] = ()
    """Those before the present one, the oldest first."""
    reason: i.ResetReason | None = None
    """Why the present `session_id` began; None for the first."""
    suspended: str | None = None
    """Why, while it is."""
    resume: str | None = None
    """The interrupted inbound message, while a resume is pending."""
    resume_at: int | None = None
    """When it was marked (UTC ms)."""
    last_mark: tuple[str, str] | None = None
    """The inbound message and the dead worker of the last mark, also once it is cleared."""
    interrupted: int = 0
    """Marks in a row without a turn that came to its end."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every session id that the key had, the oldest first."""
        return (*self.earlier, Span(self.session_id, self.since, self.reason))


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
                earlier=state.spans,
                reason=event.reason,
                suspended=None,
                interrupted=0,
                **_NOTHING_PENDING,
            )
        case i.SessionSuspended():
            return replace(state, suspended=event.reason, **_NOTHING_PENDING)
        case i.SessionResumed():
            return replace(state, suspended=None, interrupted=0)
        case i.ResumeMarked() if state.suspended is None:
            return replace(
                state,
                resume=event.inbound,
                resume_at=event.at,
                last_mark=(event.inbound, event.worker),
                interrupted=state.interrupted + 1,
            )
        case i.ResumeCleared() if event.inbound == state.resume:
            return replace(state, interrupted=0, **_NOTHING_PENDING)
        case _:
            return state


_NOTHING_PENDING: Final[dict[str, None]] = {"resume": None, "resume_at": None}


def known(state: SessionState, event: Event) -> bool:
    """Whether the ledger has this mark already: workers that see one death mark it once, also the one that comes when
    the turn has ended elsewhere."""
    return isinstance(event, i.ResumeMarked) and (event.inbound, event.worker) == state.last_mark


# ---- decisions


def freshness_s(said: float | None, environment: str | None) -> float:
    """The window of freshness: what the caller says, else the environment, else an hour. Junk says nothing."""
    for value in (said, environment):
        try:
            seconds = float(value) if value is not None else float("nan")
        except ValueError:
            continue
        if abs(seconds) < float("inf"):
            return seconds
    return FRESHNESS_S


def is_fresh(marked_at: int | None, now: int, window_s: float) -> bool:
    """Whether what was then may be continued now: the one answer for routing and for what the agent is told. A start
    asks it of nothing: a turn that is owed is run however old it is.

    The very edge is fresh; so is a time that nobody knows, and one in the future counts as now. A window of zero or
    less has no end. Times in UTC milliseconds.
    """
    return marked_at is None or window_s <= 0 or max(0, now - marked_at) <= window_s * 1000


class Standing(Protocol):
    """What a decision about a session looks at."""

    @property
    def suspended(self) -> str | None: ...
    @property
    def resume(self) -> str | None: ...
    @property
    def resume_at(self) -> int | None: ...


def must_begin_anew(session: Standing, now: int, window_s: float) -> i.ResetReason | None:
    """Whether the next message begins anew whatever the mode says: suspension is stronger than a pending resume."""
    if session.suspended is not None:
        return "suspended"
    if session.resume is not None and not is_fresh(session.resume_at, now, window_s):
        return "resume_pending_expired"
    return None


def reset_due(policy: SessionPolicy, last_at: int | None, now: int, day_began_at: int) -> i.ResetReason | None:
    """Whether the mode asks for a reset, where neither a run nor an obligation is open. Times in UTC milliseconds.

    `last_at`: of the last message; unknown, nothing is reset. `day_began_at`: the last time that it was `at_hour`.
    """
    if last_at is None or last_at > now:
        return None
    if policy.reset in ("idle", "both") and now - last_at > policy.idle_minutes * 60_000:
        return "idle"
    if policy.reset in ("daily", "both") and day_began_at > last_at:
        return "daily"
    return None


def marked(state: SessionState, inbound: str, worker: str, *, at: int, by: str) -> tuple[Event, ...]:
    """A turn of the session was interrupted by the death of a worker. Nothing where that is known; once too often in a
    row suspends. Raises `NotPossible` for a session that is suspended: that is stronger."""
    if state.suspended is not None:
        raise NotPossible(f"session {state.id} is suspended ({state.suspended}): nothing of it is resumed")
    mark = i.ResumeMarked(at=at, by=by, inbound=inbound, worker=worker)
    if known(state, mark):
        return ()
    if state.interrupted + 1 < RESUMES_MAX:
        return (mark,)
    return mark, i.SessionSuspended(at=at, by=by, reason="interrupted")


def suspended(state: SessionState, note: str, *, at: int, by: str) -> i.SessionSuspended:
    """A person suspends it. Raises `NotPossible`."""
    if state.suspended is not None:
        raise NotPossible(f"session {state.id} is suspended already ({state.suspended})")
    return i.SessionSuspended(at=at, by=by, reason="operator", note=note)


def resumed(state: SessionState, note: str, *, at: int, by: str) -> i.SessionResumed:
    """A person lifts the suspension. Raises `NotPossible`."""
    if state.suspended is None:
        raise NotPossible(f"session {state.id} is not suspended")
    return i.SessionResumed(at=at, by=by, note=note)


def reset(state: SessionState, session_id: str, note: str, *, at: int, by: str) -> i.SessionRotated:
    """A person has it begin anew."""
    return i.SessionRotated(at=at, by=by, session_id=session_id, reason="operator", note=note)
