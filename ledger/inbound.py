"""The inbound message and its turn: the state, how events change it, and the decisions about it. Pure.

A turn is owed from `InboundRecorded` on. It runs at most once at a time; a run whose worker died or failed is followed
by another, until it is completed, dropped, or held for a person.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from . import inbound_events as i
from .errors import NotPossible
from .events import ErrorContent, Event
from .limits import TURN_ATTEMPTS_MAX, TURN_BACKOFF_MS


class InboundStatus(StrEnum):
    PENDING = "pending"
    """Recorded; its turn has not begun, or will run again."""
    RUNNING = "running"
    """A worker runs its turn."""
    COMPLETED = "completed"
    DROPPED = "dropped"
    CONTEXT = "context"
    """It does not speak to us: kept for the turn that does."""


OWNER_LOST: Final = "owner_lost"
"""The `error` of a run whose worker died."""
OPEN: Final = frozenset({InboundStatus.PENDING, InboundStatus.RUNNING})


class InboundState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    id: str
    position: int
    head: int
    recorded_at: int
    updated_at: int
    event_key: str
    channel: str
    account: str
    lane: str
    place: str
    session: str | None = None
    message_id: str | None = None
    sender: str | None = None
    bot: bool = False
    addressed: bool = True
    ack: i.AckPolicy = "after_record"
    via: i.AckKind = "transport"
    status: InboundStatus
    hold: i.InboundHold | None = None
    drop: i.DropReason | None = None
    runs: int = 0
    failures: int = 0
    """Runs in a row that ended badly since a person last asked for one."""
    owner: str | None = None
    due_at: int | None = None
    """UTC milliseconds before which the next run does not begin; None where none is to begin."""
    error: str | None = None
    interrupted: bool = False
    """Whether the last run ended with its worker."""
    acknowledged_at: int | None = None
    """When the policy's point was durable (UTC ms): transport or offset may be acknowledged."""
    intents: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        """Whether its turn is still owed."""
        return self.status in OPEN

    @property
    def holds_lane(self) -> bool:
        """Whether later messages of its lane wait for it. A held one lets them pass."""
        return self.open and self.hold is None

    @property
    def settled(self) -> bool:
        """Whether the policy `after_durable_send` may acknowledge: the ledger owes whatever is to follow, or a person
        has to decide."""
        return not self.open or self.hold is not None


def record(stream: str, event: i.InboundRecorded, position: int, recorded_at: int) -> InboundState:
    return InboundState(
        id=stream,
        position=position,
        head=0,
        recorded_at=recorded_at,
        updated_at=recorded_at,
        event_key=event.event_key,
        channel=event.channel,
        account=event.account,
        lane=event.lane,
        place=event.place,
        session=event.session,
        message_id=event.message_id,
        sender=event.sender,
        bot=event.bot,
        addressed=event.addressed,
        ack=event.ack,
        via=event.via,
        status=InboundStatus.PENDING if event.addressed else InboundStatus.CONTEXT,
        due_at=event.at if event.addressed else None,
    )


def drop(stream: str, event: i.InboundDropped, position: int, recorded_at: int) -> InboundState:
    """The state of one that was dropped before it was recorded."""
    return InboundState(
        id=stream,
        position=position,
        head=0,
        recorded_at=recorded_at,
        updated_at=recorded_at,
        event_key=event.event_key,
        channel=event.channel,
        account=event.account,
        lane="",
        place=event.place,
        message_id=event.message_id,
        sender=event.sender,
        bot=event.bot,
        status=InboundStatus.DROPPED,
        drop=event.reason,
    )


def known(state: InboundState, event: Event) -> bool:
    """Whether the ledger has this fact already: acknowledged twice is once."""
    return isinstance(event, i.Acknowledged) and event.ack == state.via and state.acknowledged_at is not None


def evolve(state: InboundState, event: Event, recorded_at: int) -> InboundState:
    state = replace(state, head=state.head + 1, updated_at=recorded_at)
    match event:
        case i.Acknowledged(ack="transport" | "offset") if state.acknowledged_at is None:
            return replace(state, acknowledged_at=event.at)
        case _ if not state.open:
            return state
        case i.InboundDispatched():
            return replace(
                state, status=InboundStatus.RUNNING, runs=event.run, owner=event.owner, due_at=None, hold=None
            )
        case i.InboundCompleted():
            return replace(
                state, status=InboundStatus.COMPLETED, intents=event.intents, owner=None, due_at=None, hold=None
            )
        case i.InboundDropped():
            return replace(state, status=InboundStatus.DROPPED, drop=event.reason, owner=None, due_at=None, hold=None)
        case i.InboundFailed():
            return replace(
                state,
                status=InboundStatus.PENDING,
                failures=state.failures + 1,
                owner=None,
                due_at=event.retry_at,
                hold=event.hold,
                error=event.error,
                interrupted=event.error == OWNER_LOST,
            )
        case i.InboundHeld() if event.hold is not None:
            return replace(
                state,
                status=InboundStatus.PENDING,
                owner=None,
                due_at=None,
                hold=event.hold,
                interrupted=state.interrupted or event.hold == "restarts",
            )
        case i.InboundHeld():
            return replace(state, hold=None, failures=0, due_at=event.at)
        case _:
            return state


# ---- decisions


def acknowledgement(state: InboundState, *, at: int, by: str) -> tuple[i.Acknowledged, ...]:
    """The event that goes with the one that led to `state`, where that is the point that its policy waits for.

    A dropped message, and one that does not speak to us, have no turn that could acknowledge it by hand.
    """
    reached = {
        "immediate": True,
        "after_record": True,
        "after_durable_send": state.settled,
        "manual": state.status in (InboundStatus.DROPPED, InboundStatus.CONTEXT),
    }
    if state.acknowledged_at is not None or not reached[state.ack]:
        return ()
    return (i.Acknowledged(at=at, by=by, ack=state.via, policy=state.ack),)


def dispatched(state: InboundState, why: i.RunWhy, *, at: int, by: str, owner: str) -> i.InboundDispatched:
    """Begin a run. Raises `NotPossible` where none may begin."""
    if state.status is not InboundStatus.PENDING or state.hold is not None:
        raise NotPossible(f"inbound {state.id} is {_standing(state)}: no turn can begin")
    return i.InboundDispatched(at=at, by=by, run=state.runs + 1, owner=owner, why=why)


def taken_over(state: InboundState, *, at: int, by: str) -> i.InboundFailed:
    """The worker that ran it is gone: it counts as a bad end, so that a message that kills its worker is held."""
    return failed(state, state.runs, OWNER_LOST, "", at=at, by=by, chance=0.0)


def completed(state: InboundState, run: int, intents: tuple[str, ...], *, at: int, by: str) -> i.InboundCompleted:
    _running(state, run)
    return i.InboundCompleted(at=at, by=by, run=run, intents=intents)


def failed(
    state: InboundState,
    run: int,
    error: str,
    detail: str,
    *,
    at: int,
    by: str,
    final: bool = False,
    again: bool = True,
    chance: float = 1.0,
) -> i.InboundFailed:
    """A run ended badly: again after a while, or held where its attempts are spent (`final`: at once; `again=False`:
    there is nothing that would run it again).

    `chance`: 0 to 1, how much of the longest wait is waited.
    """
    _running(state, run)
    spent = final or not again or state.failures + 1 >= TURN_ATTEMPTS_MAX
    wait_ms = int(TURN_BACKOFF_MS[min(state.failures, len(TURN_BACKOFF_MS) - 1)] * chance)
    return i.InboundFailed(
        at=at,
        by=by,
        run=run,
        error=error,
        retry_at=None if spent else at + wait_ms,
        hold=None if not spent else "rejected" if final else "attempts",
        content=ErrorContent(detail=detail) if detail else None,
    )


def released(state: InboundState, reason: str, *, at: int, by: str) -> i.InboundHeld:
    """A person lets the turn run again, at once and with all its attempts. Raises `NotPossible`."""
    if state.status is not InboundStatus.PENDING:
        why = "a worker runs it now" if state.status is InboundStatus.RUNNING else "its turn is not owed any more"
        raise NotPossible(f"inbound {state.id} is {_standing(state)}: {why}")
    return i.InboundHeld(at=at, by=by, reason=reason)


def dropped(state: InboundState, reason: str, *, at: int, by: str) -> i.InboundDropped:
    """A person decides that there will be no turn. Raises `NotPossible`."""
    if state.status is not InboundStatus.PENDING:
        running = state.status is InboundStatus.RUNNING
        why = "a worker runs it now: wait until it ends" if running else "its turn is not owed any more"
        raise NotPossible(f"inbound {state.id} is {_standing(state)}: {why}")
    return i.InboundDropped(at=at, by=by, reason="operator", note=reason)


def _running(state: InboundState, run: int) -> None:
    """Raises `NotPossible` where the run is not the one that is going on."""
    if state.status is not InboundStatus.RUNNING or state.runs != run:
        raise NotPossible(f"run {run} of inbound {state.id} is over: it is {_standing(state)}")


def _standing(state: InboundState) -> str:
    hold = "" if state.hold is None else f", held ({state.hold})"
    return f"{state.status.value}{hold}, run {state.runs}"
