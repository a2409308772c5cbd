"""The worker: a process that has the ledger open, from `WorkerStarted` to `WorkerStopped` or to its death."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from . import events as e


class WorkerState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    id: str
    position: int
    head: int
    recorded_at: int
    updated_at: int
    host: str
    boot: str
    pid: int
    msgledger: str
    channels: dict[str, str]
    config: str
    started_at: int
    stopped_at: int | None = None
    stopped: str | None = None
    down: tuple[str, ...] = ()
    """Channels (`name/account`) that it cannot use now."""
    interrupted: int = 0
    """Turns that it found cut off when it started."""
    lost: int = 0
    """Best-effort sends that went out without the ledger."""


def start(stream: str, event: e.WorkerStarted, position: int, recorded_at: int) -> WorkerState:
    return WorkerState(
        id=stream,
        position=position,
        head=0,
        recorded_at=recorded_at,
        updated_at=recorded_at,
        host=event.host,
        boot=event.boot,
        pid=event.pid,
        msgledger=event.msgledger,
        channels=event.channels,
        config=event.config,
        started_at=event.at,
        interrupted=event.interrupted,
    )


def evolve(state: WorkerState, event: e.Event, recorded_at: int) -> WorkerState:
    state = replace(state, head=state.head + 1, updated_at=recorded_at)
    match event:
        case e.ChannelDown():
            name = f"{event.channel}/{event.account}"
            return replace(state, down=tuple(sorted({*state.down, name})))
        case e.ChannelReady():
            name = f"{event.channel}/{event.account}"
            return replace(state, down=tuple(other for other in state.down if other != name))
        case e.DurabilityLost():
            return replace(state, lost=state.lost + event.sends)
        case e.WorkerStopped():
            return replace(state, stopped_at=event.at, stopped=event.reason)
        case _:
            return state
